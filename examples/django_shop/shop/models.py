"""Orders."""

from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=40)
    invoices = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.item
