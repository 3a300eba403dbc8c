"""Whether the tasks of a suite are sound: by their form, and by oracles on real desktops."""
