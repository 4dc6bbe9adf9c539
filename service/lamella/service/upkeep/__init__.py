"""Jobs, and what asks for them by itself: schedules and policies."""

from lamella.service.upkeep.conditions import Conditions, Measured, SnapshotConditions
from lamella.service.upkeep.due import Due
from lamella.service.upkeep.job_queue import JobQueue
from lamella.service.upkeep.job_values import STATES as JOB_STATES
from lamella.service.upkeep.job_values import job_filter
from lamella.service.upkeep.policies import Policies
from lamella.service.upkeep.schedules import Schedules

__all__ = [
    "JOB_STATES",
    "Conditions",
    "Due",
    "JobQueue",
    "Measured",
    "Policies",
    "Schedules",
    "SnapshotConditions",
    "job_filter",
]
