"""A project's own tests with the kit: tasks run on the test's thread, in its transaction, at a time that it moves."""

from django.db import connection
from django.test import SimpleTestCase, TestCase
from django.test.utils import CaptureQueriesContext
from shop import tasks
from shop.models import Order

from cronsensus.integrations.django import scheduler
from cronsensus.testing import kit


class WithTheKit(TestCase):
    def setUp(self):
        self.kit = self.enterContext(kit(scheduler, start="2027-03-01 12:00:00"))

    def test_a_task_that_a_view_enqueues_runs_and_sees_the_rows_of_the_test(self):
        order = Order.objects.create(item="a book")
        result = tasks.send_invoice.enqueue(order.pk)
        self.kit.run_due()
        order.refresh_from_db()
        assert order.invoices == 1
        result.refresh()
        assert result.return_value == f"invoice of order {order.pk}"
        self.kit.check()

    def test_the_scheduler_itself_asks_the_database_nothing(self):
        with CaptureQueriesContext(connection) as queries:
            tasks.double.enqueue(4)
            self.kit.travel("5s")
        assert not [one["sql"] for one in queries if "cronsensus" in one["sql"]]
        assert [one.job for one in self.kit.attempts(tasks.double)] == ["shop.tasks.double"]
        self.kit.assert_ran_once(tasks.double)
        assert len(self.kit.attempts(tasks.tick)) >= 5

    def test_nothing_of_an_earlier_test_is_left(self):
        assert not self.kit.runs("shop.tasks.double")
        assert Order.objects.count() == 0


class WithoutADatabase(SimpleTestCase):
    def test_the_kit_needs_none(self):
        with kit(scheduler) as shop:
            tasks.double.enqueue(4)
            shop.run_due()
            shop.assert_ran_once(tasks.double)
