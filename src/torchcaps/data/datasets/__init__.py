"""One module per dataset; importing this package registers all of them."""

from torchcaps.data.datasets import (  # noqa: F401
    affnist,
    cifar10,
    fashion_mnist,
    glyphs,
    image_folder,
    mnist,
    multimnist,
    smallnorb,
)
