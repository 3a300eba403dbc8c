"""Files of a hostile guest, read within bounds. The worker that reads plain files loads this module alone."""


class RefusedError(Exception):
    """The file is not read; the text is a value of `ReadRefusal` in `actors.desktop.files.read_home`."""
