"""What a client's file may be. The limits are the process's own, set once when its model is loaded."""

from __future__ import annotations


class FileRejected(ValueError):
    """A client's file is not opened; the text says why, for the client."""


class FileLimits:
    """The limits of this process."""

    image_formats: tuple[str, ...] = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
    """Formats of images, by Pillow's names. Others may start programs, as EPS does, or decode before they are asked."""
    pixels: int | None = None
    """Pixels of an image; none where Pillow's own limit holds."""
    expanded: int = 64 << 20
    """Bytes to which a compressed file may expand."""

    def set(self, image_formats: str | None, pixels: int | None, expanded: int | None) -> None:
        """Takes what the server says, formats with commas between them; what it does not say stays."""
        if image_formats:
            self.image_formats = tuple(name.strip().upper() for name in image_formats.split(","))
        self.pixels = pixels or self.pixels
        self.expanded = expanded or self.expanded

    def check_expansion(self, size: int, sent: int) -> None:
        """A file of `sent` bytes claims to hold `size` bytes. One that is not compressed may be as large as it is."""
        most = max(self.expanded, sent)
        if size > most:
            what = f"it expands to {size} bytes, and the server takes at most {most} (max_expanded_size)"
            raise FileRejected(f"{what}: send less at a time")


limits = FileLimits()
