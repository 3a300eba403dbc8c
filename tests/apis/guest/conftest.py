"""The guest's modules under the name that they have on a desktop."""

import sys

import apis.guest

sys.modules.setdefault("guest", apis.guest)
