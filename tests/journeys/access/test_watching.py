"""What is hidden makes no sound: who watches a type hears of what it could read."""

import asyncio

import msgspec

from trails import App, Node, node_type, predicate
from trails.app.kernels import kernel_of
from trails.model.actors import Actor
from trails.request.pipeline import Kernel


@node_type
class Person(Node):
    """Somebody."""

    name: str = predicate(key=True)


@node_type
class Spy(Person):
    """Somebody who is not to be known of."""


@node_type
class Guard(Person):
    """Somebody who stands around."""


class Discreet:
    """Hides one type from all but the chief."""

    version = "discreet"

    @property
    def current(self):
        """Itself."""
        return self

    def allows(self, actor, action, resource, branch="", target=""):
        """Whether it is not that type."""
        del action, branch, target
        return actor.name == "chief" or resource.id not in ("Spy", "Spy.name")

    def allows_somewhere(self, actor, action, resource, branches):
        """The same on every branch."""
        del branches
        return self.allows(actor, action, resource)

    def alike(self, actor, branches):
        """All are."""
        del actor
        return dict.fromkeys(branches, min(branches))


def test_a_hidden_type_is_not_heard_through_what_it_extends():
    """Who sees it hears of it by its parent's name, and who does not hears of the others alone."""
    uri = "trails://kg/Person"
    with App(Person, Spy, Guard) as app:
        own = kernel_of(app)
        kernel = Kernel(app.service(), msgspec.structs.replace(own._options, judge=Discreet()))

        async def scenario():
            chief, clerk = (
                kernel.watch(Actor(name, credential="t"), [uri]) for name in ("chief", "clerk")
            )
            for kind, heard in ((Spy, []), (Guard, [uri]), (Spy, []), (Person, [uri])):
                woken = asyncio.Event()
                chief.wake = woken.set
                node = kind(name=f"number {app.graph().log.last_seq()}")
                await asyncio.to_thread(node.save, app.context())
                await asyncio.wait_for(woken.wait(), 20)
                await asyncio.sleep(0)
                assert list(chief.take()) == [uri]
                assert list(clerk.take()) == heard
            chief.close()
            clerk.close()

        asyncio.run(scenario())
        kernel.close()
        own.close()
