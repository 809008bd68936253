"""What exactly one of several workers does when they start. Floor 5."""

from cronsensus.startup.coordinator import StartupCoordinator

__all__ = ["StartupCoordinator"]
