"""Settings of the shop. Tests give it other databases by SHOP_DATABASE."""

import json
import os
from pathlib import Path

import django

BASE_DIR = Path(__file__).parent
SECRET_KEY = "only for trying it out"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TIME_ZONE = "Europe/Paris"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.admin",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    *([] if django.VERSION >= (6,) else ["django_tasks"]),
    "shop",
    "cronsensus.integrations.django",
]
DATABASES = {
    "default": json.loads(os.environ["SHOP_DATABASE"])
    if "SHOP_DATABASE" in os.environ
    else {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": BASE_DIR / "shop.sqlite3",
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
        "TEST": {"NAME": BASE_DIR / "test.sqlite3"},
    }
}
TASKS = {"default": {"BACKEND": "cronsensus.integrations.django.Backend"}}
CRONSENSUS = json.loads(os.environ.get("SHOP_CRONSENSUS", "{}"))
if DATABASES["default"]["ENGINE"].endswith("mysql"):
    import pymysql

    pymysql.version_info = (2, 2, 1, "final", 0)  # what Django asks of mysqlclient
    pymysql.install_as_MySQLdb()
ALLOWED_HOSTS = ["testserver", "127.0.0.1"]
DEBUG = True
ROOT_URLCONF = "urls"
STATIC_URL = "/static/"
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
