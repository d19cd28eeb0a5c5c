"""torchvision's MobileNetV2 in Keras."""

import numpy as np
import pytest

from benchmarks import mobilenet
from supcon_tf import models


def test_every_array_of_a_state_dict_has_its_place():
    network = mobilenet.backbone()
    state = {}
    for number, weight in enumerate(network.weights):
        shape = tuple(weight.shape)
        if "depthwise" in weight.name:
            shape = (shape[2], 1, *shape[:2])
        elif len(shape) == 4:
            shape = (shape[3], shape[2], *shape[:2])
        state[f"features.{number}"] = np.full(shape, number + 1, np.float32)
    state["features.0.num_batches_tracked"] = np.array(3)
    state["classifier.1.bias"] = np.zeros(1000, np.float32)
    mobilenet.assign(network, state)
    for number, values in enumerate(network.get_weights()):
        np.testing.assert_array_equal(values, number + 1)
    with pytest.raises(ValueError, match="1 arrays of no layer are left"):
        mobilenet.assign(network, state | {"features.x": np.zeros(3)})


@pytest.mark.slow
def test_features_are_torchvisions(tmp_path):
    torch = pytest.importorskip("torch")
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    original = torchvision.models.mobilenet_v2().train()
    generator = np.random.default_rng(0)
    images = generator.uniform(0, 255, (4, 64, 64, 3)).astype(np.float32)
    mean = np.float32([0.485, 0.456, 0.406])
    deviation = np.float32([0.229, 0.224, 0.225])
    scaled = torch.tensor((images / 255 - mean) / deviation)
    scaled = scaled.permute(0, 3, 1, 2)
    with torch.no_grad():
        original(scaled)  # statistics that are not 0 and 1
        features = original.eval().features(scaled).mean((2, 3)).numpy()
    torch.save(original.state_dict(), tmp_path / "mobilenet.pth")
    weights_path = str(tmp_path / "mobilenet.weights.h5")
    mobilenet.main(str(tmp_path / "mobilenet.pth"), weights_path)
    encoder = mobilenet.plain()
    models.load_weights(encoder, weights_path)
    np.testing.assert_allclose(encoder(images), features, rtol=1e-3, atol=1e-4)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    encoder = mobilenet.encoder()
    models.load_weights(encoder, weights_path)
    np.testing.assert_allclose(encoder(images), unit, rtol=1e-3, atol=1e-4)
