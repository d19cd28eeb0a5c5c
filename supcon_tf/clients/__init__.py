"""Clients: images to the answers of an exported model, here or at a server."""

from supcon_tf.clients.predict import predict
