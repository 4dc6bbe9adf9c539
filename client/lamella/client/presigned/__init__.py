"""Reading blocks by signed URLs: with the service's leave, and without credentials for the store.

The service signs a URL for each block that may be read (``docs/data-access.md``). They hold for some minutes; one that
is refused is asked for anew, together with those that will be needed next.
"""

from lamella.client.presigned.planner import SignedPlanner
from lamella.client.presigned.signed_blocks import Signed
from lamella.client.presigned.store import UrlStore
from lamella.client.presigned.urls import BlockUrls, asking

__all__ = ["BlockUrls", "Signed", "SignedPlanner", "UrlStore", "asking"]
