"""Orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []  # noqa: RUF012
    operations = [  # noqa: RUF012
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("item", models.CharField(max_length=40)),
                ("invoices", models.IntegerField(default=0)),
            ],
        ),
    ]
