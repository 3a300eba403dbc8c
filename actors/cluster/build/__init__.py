"""`computerrl apis build`: a language model writes functions of an application, and real desktops judge them."""
