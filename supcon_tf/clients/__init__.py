"""Clients: send images or texts to an exported model, here or at a server."""

from supcon_tf.clients.predict import predict
