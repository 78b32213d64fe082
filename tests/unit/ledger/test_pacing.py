"""How fast a slave is fed that copies: full speed beside an idle master, else little more than comes in."""

from __future__ import annotations

from samples.replicas import NOW_MS, Group
from tidemill_ledger.pacing import COMMAND_BYTES, LOOK_MS, WINDOW_MS, Pace, Pacing, Traffic, Watch, rate_of
from tidemill_ledger.replication import Master
from tidemill_wire.commands import Command
from tidemill_wire.limits import MIB
from tidemill_wire.replication import Chunk, Ends

RULE = Pacing(idle_bytes=10, floor_bytes=100, share=4, near_bytes=500)
FOREVER_MS = 60_000


def test_beside_a_master_with_nothing_to_do_nobody_is_held_back() -> None:
    assert rate_of(Traffic(9, 9), 1, RULE) == 0


def test_a_busy_master_sends_what_comes_in_and_a_share_of_its_work() -> None:
    assert rate_of(Traffic(1_000, 2_000), 1, RULE) == 1_000 + 500


def test_what_goes_beyond_what_comes_in_is_never_less_than_the_floor() -> None:
    assert rate_of(Traffic(20, 40), 1, RULE) == 120
    assert rate_of(Traffic(0, 40), 1, RULE) == 100


def test_slaves_that_copy_together_cost_what_one_of_them_would_and_all_arrive() -> None:
    alone, three = (rate_of(Traffic(1_000, 2_400), copying, RULE) for copying in (1, 3))

    assert three > 1_000
    assert 3 * (three - 1_000) == alone - 1_000


def test_the_share_costs_a_tenth_of_the_work_at_most() -> None:
    """A byte copied costs no more than one that is appended. Below that it is the floor that costs."""
    for work in (640 * MIB, 900 * MIB):
        assert rate_of(Traffic(work, work), 1, Pacing()) - work <= work / 10


def test_traffic_is_what_was_appended_and_done_in_the_last_second() -> None:
    watch = Watch(5_000, NOW_MS)
    appended = 5_000
    for look in range(1, 31):
        appended += 100
        watch.served += 7
        traffic = watch.look(appended, NOW_MS + LOOK_MS * look)

    assert traffic == Traffic(1_000, 1_070)


def test_traffic_that_ends_is_forgotten_in_a_second() -> None:
    watch = Watch(0, NOW_MS)
    watch.look(1 << 30, NOW_MS + LOOK_MS)
    for look in range(2, 2 + WINDOW_MS // LOOK_MS):
        traffic = watch.look(1 << 30, NOW_MS + LOOK_MS * look)

    assert traffic == Traffic(0, 0)


def test_a_master_that_stood_still_was_not_busy_in_no_time() -> None:
    watch = Watch(0, NOW_MS)

    assert watch.look(10_000, NOW_MS + 10_000) == Traffic(1_000, 1_000)


def test_a_pace_sends_its_rate_in_pieces_of_any_size() -> None:
    for piece in (1, 30, 999, 5_000):
        pace, sent = Pace(NOW_MS), 0
        pace.set(1_000, NOW_MS)
        for now_ms in range(NOW_MS, NOW_MS + 20_000):
            while pace.allows(now_ms):
                pace.sent(piece)
                sent += piece
        assert 20_000 - LOOK_MS <= sent <= 20_000 + piece


def test_a_pace_says_when_it_sends_again() -> None:
    pace = Pace(NOW_MS)
    pace.set(300, NOW_MS)
    assert not pace.allows(NOW_MS)
    pace.sent(1_000)
    at_ms = pace.wake_at_ms(NOW_MS)
    assert at_ms is not None

    assert not pace.allows(at_ms - 1)
    assert pace.allows(at_ms)
    assert pace.wake_at_ms(at_ms) is None


def test_who_is_held_back_is_woken_later_than_now_however_late_it_is() -> None:
    pace = Pace(NOW_MS)
    pace.set(300, NOW_MS)
    pace.sent(1_000)
    for now_ms in range(NOW_MS, NOW_MS + 5_000):
        assert (pace.wake_at_ms(now_ms) or FOREVER_MS + NOW_MS) > now_ms


def test_what_was_not_sent_in_time_is_not_made_up_for_at_once() -> None:
    pace, sent = Pace(NOW_MS), 0
    pace.set(1_000, NOW_MS)
    while pace.allows(NOW_MS + FOREVER_MS):
        pace.sent(1)
        sent += 1

    assert sent == 1_000 * LOOK_MS // 1_000


def test_who_is_not_held_back_any_more_has_no_debt() -> None:
    pace = Pace(NOW_MS)
    pace.set(10, NOW_MS)
    pace.sent(1_000_000)
    pace.set(0, NOW_MS)

    assert pace.allows(NOW_MS)
    assert pace.wake_at_ms(NOW_MS) is None


class Copying:
    """A slave that has nothing, beside a master that is busy at 20,000 bytes a second with what it has."""

    def __init__(self, in_sync: tuple[str, ...] = ("a",)) -> None:
        self.group = Group("a", "b", segment_bytes=1024, action_segment_bytes=512)
        self.group.cut.add("b")
        self.group.appoint(1, "a", in_sync)
        self.number = 0
        master = self.group["a"].machine
        assert isinstance(master, Master)
        self.master = master
        master.pacing = Pacing(
            idle_bytes=COMMAND_BYTES // 2, floor_bytes=4_000, share=1 << 40, near_bytes=4_000
        )
        for _ in range(40):
            self.work()
        self.bytes = 0
        self.group.passes = self._count
        self.group.cut.clear()

    def _count(self, _target: str, command: Command) -> bool:
        if isinstance(command, Chunk):
            self.bytes += len(command.data)
        return True

    def work(self) -> None:
        """A message comes in, and a tenth of a second goes by."""
        self.number += 1
        self.group["a"].send(b"tide" * 100, number=self.number)
        self.pass_time()

    def pass_time(self) -> None:
        for replica in self.group.replicas.values():
            replica.tick(LOOK_MS)

    @property
    def lag(self) -> int:
        return sum(self.group["a"].machine.ends) - sum(self.group["b"].machine.ends)


def test_a_slave_that_copies_is_fed_little_more_than_comes_in() -> None:
    copying = Copying()
    lag = copying.lag
    for _ in range(10):
        copying.work()
        copying.group.run()

    came = 10 * 600
    assert 0 < copying.bytes < came + 2 * 4_000
    assert copying.lag < lag


def test_a_slave_that_copies_beside_traffic_arrives_and_is_wished_in() -> None:
    copying = Copying()
    for _ in range(200):
        copying.work()
        copying.group.run()

    assert copying.group["a"].stand().wish == ("a", "b")
    assert copying.group["b"].log("message") == copying.group["a"].log("message")


def test_a_slave_that_is_in_sync_is_fed_as_fast_as_it_takes() -> None:
    copying = Copying(in_sync=("a", "b"))
    copying.group.run()

    assert copying.lag == 0


def test_when_the_traffic_ends_the_rest_is_copied_at_once() -> None:
    copying = Copying()
    for _ in range(WINDOW_MS // LOOK_MS + 1):
        copying.pass_time()
    copying.group.run()

    assert copying.lag == 0


def test_a_master_that_holds_back_wakes_when_more_may_be_sent() -> None:
    copying = Copying()
    copying.group.run()
    [feed] = copying.master.feeds.values()
    wake_at_ms = copying.master.ready().wake_at_ms

    assert feed.pace.rate > 0
    assert wake_at_ms == feed.pace.wake_at_ms(copying.group["a"].now_ms)


def test_a_slave_whose_next_bytes_were_removed_is_dropped_once() -> None:
    copying = Copying()
    copying.group.run()
    [feed] = copying.master.feeds.values()
    feed._sent = Ends(-1, -1)

    assert copying.master.ready().drops == [feed.peer]
    assert not copying.master.ready()
