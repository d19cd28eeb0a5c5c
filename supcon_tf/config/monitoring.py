"""What a user sees of a run while it trains."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions, settings


@dataclasses.dataclass(frozen=True)
class MonitorSettings(settings.Settings):
    """Measures and pictures beside the loss; none changes the encoder."""

    online_classifier: bool = settings.setting(
        False,
        "Train a linear classifier beside the encoder, behind a stopped "
        "gradient: its accuracy shows in the log.",
    )
    knn_every: int = settings.setting(
        0,
        "Epochs between k-NN accuracies of the test split, by the "
        "representations of the training split; 0 for none. For watching: "
        "choosing by it would be choosing on the test split.",
        at_least=0,
        resumable=True,
        common=True,
    )
    profile: tuple[int, ...] = settings.setting(
        (),
        "First and last step of a profile for TensorBoard, counted from where "
        "the tool starts or goes on; empty for none.",
        resumable=True,
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        steps = self.profile
        if steps and not (len(steps) == 2 and 1 <= steps[0] <= steps[1]):
            raise exceptions.InvalidValue(
                "--profile must be empty or two steps 1 <= first <= last, "
                f"got {settings.to_text(steps)}"
            )
