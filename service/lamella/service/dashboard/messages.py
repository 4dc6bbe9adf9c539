"""What a page says once a form was taken: the address has the code, so that nobody can put words of theirs there."""

from __future__ import annotations

from typing import Final

MESSAGES: Final[dict[str, str]] = {
    "cancelled": "The job is cancelled, or its worker was asked to end it.",
    "queued": "The job was asked for.",
    "already_queued": "Such a job was pending already; this is it.",
    "retried": "The job was queued again.",
    "rolled_back": "The table has the blocks of the older snapshot again.",
    "tagged": "The tag is set.",
    "untagged": "The tag is gone; the snapshot stays as long as the retention lets it.",
    "key_set": "The cluster key is set. A recluster job brings the blocks into its order.",
    "key_revoked": "The key is revoked. Other replicas notice within a few seconds.",
    "granted": "The role is given.",
    "taken": "The role is taken away.",
    "index_made": "The index is made, and a job waits that fills it.",
    "index_dropped": "The index is not used any more. It can be restored until a clean-up removes its parts.",
    "index_restored": "The index is in use again.",
}
