"""Models in the format of the Hugging Face Hub: a folder that anybody can load, on this machine or through the Hub."""

from torchcaps.hub.folder import from_folder
from torchcaps.hub.remote import from_pretrained, push_to_hub
from torchcaps.hub.save import save_pretrained

__all__ = ["from_folder", "from_pretrained", "push_to_hub", "save_pretrained"]
