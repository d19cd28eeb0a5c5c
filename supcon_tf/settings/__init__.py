"""The mechanism of settings: fields with rules, flags, flagfiles.

Importing it does not import TensorFlow, so that `--help` and a wrong flag
answer at once. The settings themselves are in config/.
"""

from supcon_tf.settings.comparison import (
    adopt,
    changes,
    shared_fields,
    shown_fields,
    to_texts,
)
from supcon_tf.settings.fields import (
    Settings,
    SettingsType,
    check_field,
    field_of,
    setting,
    to_text,
)
from supcon_tf.settings.flag_values import (
    define_flags,
    from_flagfile,
    from_flags,
    to_flagfile,
    to_flags,
)
