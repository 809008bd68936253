"""Django's commands for the shop, and cronsensus' own: python manage.py cronsensus --help"""

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
execute_from_command_line(sys.argv)
