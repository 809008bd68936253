"""Which page stands on which shelf of the site, in the order of the side bar."""

ENGLISH: dict[str, tuple[str, ...]] = {
    "Start": ("tutorial", "which-one", "guide", "integrations", "coming-from", "testing"),
    "Recipes": (
        "recipes",
        "once",
        "startup",
        "locks",
        "batches",
        "dependencies",
        "enqueue-with-your-commit",
        "exactly-once-effects",
        "apscheduler",
        "celery",
        "django",
        "rabbitmq",
    ),
    "Run it": (
        "operations",
        "stores",
        "dashboard",
        "alerts",
        "metrics",
        "opentelemetry",
        "security",
        "changing-things-safely",
        "troubleshooting",
    ),
    "Understand": (
        "guarantees",
        "who-fires-when",
        "where-it-stops",
        "comparison",
        "benchmarks",
        "tour",
        "adr/index",
    ),
    "Reference": (
        "reference/api",
        "reference/commands",
        "reference/settings",
        "reference/metrics",
        "reference/errors",
        "reference/schema",
        "events",
        "glossary",
        "stability",
        "changelog",
        "releasing",
    ),
}
CHINESE: dict[str, tuple[str, ...]] = {
    "开始": ("zh/tutorial", "zh/guide", "zh/testing"),
    "场景": (
        "zh/recipes",
        "zh/dashboard",
        "zh/dependencies",
        "zh/batches",
        "zh/alerts",
        "zh/apscheduler",
        "zh/celery",
        "zh/django",
        "zh/rabbitmq",
    ),
}
FRONT = ("index", "zh/index")
"""The first page of each language: on no shelf, for they have the shelves."""
