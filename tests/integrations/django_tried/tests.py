"""A project's own tests, run by Django's test runner."""

from django.test import SimpleTestCase, TestCase, TransactionTestCase
from shop import tasks
from shop.models import Order

from cronsensus.integrations.django import scheduler


class InATransaction(TestCase):
    def test_a_task_is_called(self):
        order = Order.objects.create(item="a book")
        assert tasks.send_invoice.call(order.pk) == f"invoice of order {order.pk}"
        order.refresh_from_db()
        assert order.invoices == 1

    def test_a_task_is_enqueued_and_gone_with_the_test(self):
        result = tasks.send_invoice.enqueue(1)
        assert str(result.status) == "READY"
        assert not list(scheduler.runs(tasks.send_invoice))


class WithCommits(TransactionTestCase):
    def test_a_task_is_enqueued_and_committed(self):
        tasks.send_invoice.enqueue(2)
        assert len(scheduler.runs(tasks.send_invoice)) == 1

    def test_a_task_is_enqueued_and_its_result_is_found(self):
        result = tasks.send_invoice.enqueue(1)
        assert len(scheduler.runs(tasks.send_invoice)) == 1  # not that of the other test
        found = tasks.send_invoice.get_result(result.id)
        assert (str(found.status), found.args) == ("READY", [1])


class WithoutADatabase(SimpleTestCase):
    def test_what_would_be_enqueued_is_refused_as_a_query_is(self):
        with self.assertRaisesMessage(AssertionError, "are not allowed in SimpleTestCase"):
            tasks.send_invoice.enqueue(3)
