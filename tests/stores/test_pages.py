"""Reading page by page: everything once, in order, and no page more than it takes."""

from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.pages import every_job, every_occurrence


def test_every_occurrence_reads_each_once_and_ends_with_the_first_short_page(monkeypatch):
    store = MemoryStore()
    store.define_jobs([JobSpec(name="job", function="job")], release="1")
    made = [one.id for one in store.enqueue([Item(job="job", key=str(number)) for number in range(5)])]
    sizes, read = [], store.occurrences

    def counting(*args, **options):
        found = read(*args, **options)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(store, "occurrences", counting)
    assert [one.id for one in every_occurrence(store, OccurrenceFilter(), page=2)] == sorted(made)
    assert sizes == [2, 2, 1]
    newest = every_occurrence(store, OccurrenceFilter(), after=max(made), newest_first=True, page=2)
    assert [one.id for one in newest] == sorted(made, reverse=True)[1:]


def test_every_job_goes_on_after_the_name_of_the_last():
    store = MemoryStore()
    names = ["a", "b", "c", "d", "e"]
    store.define_jobs([JobSpec(name=name, function=name) for name in names], release="1")
    assert [view.spec.name for view in every_job(store, after="a", page=2)] == names[1:]
