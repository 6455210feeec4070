"""A face in, 136 numbers out: x and y of 68 landmarks as parts of the image's width and height."""

from torchvision import transforms

from ts.torch_handler.vision_handler import VisionHandler


class FaceLandmarks(VisionHandler):
    """Squeezes the face into 112 x 112 pixels and passes the model's answer on."""

    image_processing = transforms.Compose(
        [
            transforms.Lambda(lambda image: image.convert("RGB")),
            transforms.Resize((112, 112)),
            transforms.ToTensor(),
        ]
    )
