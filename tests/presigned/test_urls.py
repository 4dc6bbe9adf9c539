"""URLs that are asked for when they are needed, and blocks that are read by them; without a network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from lamella.client.http.exchange import RetryPolicy
from lamella.client.http.fake_transport import FakeTransport
from lamella.client.http.transport import HttpRequest, HttpResponse, TransportFailure
from lamella.client.presigned import AT_ONCE, BlockUrls, UrlStore
from lamella.snapshot.errors import BlockReplaced, LamellaError, ObjectNotFound, StoreError
from lamella.snapshot.wire import BlockFacts, BlocksAnswer

ORDER = [f"s3://b/{number:05}" for number in range(2_500)]
DATA = bytes(range(200))


class Service:
    """Signs URLs with a number that grows with each request."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.lock = threading.Lock()

    def __call__(self, locations: Sequence[str], snapshot_id: str | None) -> BlocksAnswer:
        with self.lock:
            self.requests.append(list(locations))
            turn = len(self.requests)
        known = [location for location in locations if location in ORDER]
        return BlocksAnswer(
            snapshot_id=snapshot_id or "current",
            blocks=tuple(
                BlockFacts(
                    location=location,
                    row_count=1,
                    file_size=len(DATA),
                    content_id="etag",
                    url=f"https://host/{location[5:]}?turn={turn}",
                )
                for location in known
            ),
            missing=tuple(location for location in locations if location not in known),
        )


@pytest.fixture
def service() -> Service:
    """A service that was asked nothing."""
    return Service()


@pytest.fixture
def urls(service: Service) -> BlockUrls:
    """URLs of a snapshot whose blocks will be read in order."""
    made = BlockUrls(service)
    made.begin("snapshot", ORDER)
    return made


def test_urls_are_requested_in_the_order_of_reading(service: Service, urls: BlockUrls) -> None:
    """One request brings those of the blocks behind as well, and none brings one twice."""
    assert [urls.of(location).url[-6:] for location in ORDER[:3]] == ["turn=1"] * 3
    for location in ORDER:
        urls.of(location)
    assert [len(locations) for locations in service.requests] == [AT_ONCE, AT_ONCE, 500]
    assert [location for locations in service.requests for location in locations] == ORDER


def test_urls_that_arrived_with_the_plan_are_used(service: Service, urls: BlockUrls) -> None:
    """Nothing is asked before the first block that has none."""
    urls.learn(ORDER[:10], [200] * 10, ["https://x/?0"] * 10)
    assert urls.of(ORDER[9]).url == "https://x/?0"
    assert not service.requests
    urls.of(ORDER[10])
    assert service.requests[0][0] == ORDER[10]


def test_a_refused_url_is_renewed_with_those_behind_it(service: Service, urls: BlockUrls) -> None:
    """They came with it, so they are refused too; what came later is not asked for again."""
    old = urls.of(ORDER[0])
    urls.of(ORDER[AT_ONCE])
    new = urls.renewed(ORDER[500], old)
    assert new.url.endswith("turn=3")
    assert service.requests[2] == ORDER[500:AT_ONCE]
    assert urls.of(ORDER[AT_ONCE]).url.endswith("turn=2")
    assert urls.of(ORDER[0]).url.endswith("turn=1")
    assert urls.renewed(ORDER[600], old).url.endswith("turn=3")
    assert len(service.requests) == 3


def test_threads_that_are_refused_together_ask_once(service: Service, urls: BlockUrls) -> None:
    """While one asks, the others wait, and take what it got."""
    old = urls.of(ORDER[0])
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda location: urls.renewed(location, old), ORDER[:50]))
    assert {block.turn for block in found} == {found[0].turn}
    assert len(service.requests) <= 1 + 50
    assert sum(len(locations) for locations in service.requests[1:]) <= AT_ONCE + 50


def test_a_block_that_was_not_predicted_is_requested_alone(service: Service, urls: BlockUrls) -> None:
    """A block of another plan has a URL; what is no block has none."""
    made = BlockUrls(service)
    assert made.of(ORDER[7]).size_bytes == len(DATA)
    assert service.requests == [[ORDER[7]]]
    with pytest.raises(ObjectNotFound):
        urls.of("s3://b/other")


def test_a_service_that_knows_no_urls_is_recognised(service: Service) -> None:
    """One of an older release would refuse the request, or leave them out."""

    def older(locations: Sequence[str], snapshot_id: str | None) -> BlocksAnswer:
        answer = service(locations, snapshot_id)
        return BlocksAnswer(
            snapshot_id="x", blocks=(BlockFacts(location=answer.blocks[0].location, row_count=1, file_size=1),)
        )

    with pytest.raises(LamellaError, match="older"):
        BlockUrls(older).of(ORDER[0])


def test_few_urls_are_cached(service: Service) -> None:
    """A scan of very many blocks does not keep what it has used."""
    urls = BlockUrls(service)
    many = [f"s3://b/{number % 2_500:05}" for number in range(2_500)]
    urls.begin("snapshot", many)
    for start in range(0, 40_000, 1_000):
        size = range(start, start + 1_000)
        names = [f"s3://c/{number}" for number in size]
        urls.learn(names, [1] * 1_000, names)
    assert urls.of("s3://c/39999").url == "s3://c/39999"
    assert len(urls._cached) == 10_000


Answer = Callable[[HttpRequest], HttpResponse | TransportFailure]


class Store:
    """A store by URLs, over answers that a test gives."""

    def __init__(self, urls: BlockUrls) -> None:
        self.answers: list[HttpResponse | TransportFailure] = []
        self.waits: list[float] = []
        self.transports: dict[str, FakeTransport] = {}
        self.etag = '"etag"'
        self.store = UrlStore(
            urls,
            policy=RetryPolicy(attempts=3),
            open_transport=self._open,
            sleep=self.waits.append,
            jitter=lambda: 0.5,
        )

    def _open(self, origin: str) -> FakeTransport:
        self.transports[origin] = FakeTransport(self._answer)
        return self.transports[origin]

    @property
    def requests(self) -> list[HttpRequest]:
        """What was sent."""
        return [request for transport in self.transports.values() for request in transport.requests]

    def _answer(self, request: HttpRequest) -> HttpResponse | TransportFailure:
        if self.answers:
            return self.answers.pop(0)
        span = request.header("Range")
        if span is None:
            return HttpResponse(status=200, headers={"etag": self.etag}, body=DATA)
        first, last = map(int, span.removeprefix("bytes=").split("-"))
        if first >= len(DATA):
            return HttpResponse(status=416, headers={"content-range": f"bytes */{len(DATA)}"})
        body = DATA[first : last + 1]
        content_range = f"bytes {first}-{first + len(body) - 1}/{len(DATA)}"
        return HttpResponse(status=206, headers={"content-range": content_range, "etag": self.etag}, body=body)


@pytest.fixture
def store(urls: BlockUrls) -> Store:
    """A store whose answers are right unless a test says otherwise."""
    return Store(urls)


def test_a_block_is_read_whole_and_in_ranges(store: Store) -> None:
    """By GET alone, at the URL's own host and target, without a header that says who asks."""
    location = ORDER[0]
    assert store.store.read(location) == DATA
    assert store.store.read_range(location, 10, 20) == DATA[10:30]
    assert store.store.read_range(location, 190, 20) == DATA[190:]
    assert store.store.read_range(location, 500, 20) == b""
    assert store.store.read_range(location, 5, 0) == b""
    stat = store.store.stat(location)
    assert (stat.location, stat.size_bytes, stat.content_id) == (location, 200, "etag")
    assert list(store.transports) == ["https://host"]
    for request in store.requests:
        assert (request.method, request.target) == ("GET", "/b/00000?turn=1")
        assert {name for name, _ in request.headers} <= {"Range", "Accept-Encoding"}


def test_a_server_without_ranges_still_gives_the_right_bytes(store: Store) -> None:
    """It answers 200 with all of them."""
    store.answers += [HttpResponse(status=200, headers={"etag": "e"}, body=DATA)] * 2
    assert store.store.read_range(ORDER[0], 10, 20) == DATA[10:30]
    with pytest.raises(BlockReplaced):
        store.store.stat(ORDER[0])  # another etag


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_url_that_is_refused_is_renewed_once(store: Store, service: Service, status: int) -> None:
    """Then the new one is used; when that is refused too, there is no use in going on."""
    store.answers = [HttpResponse(status=status)]
    assert store.store.read_range(ORDER[0], 0, 5) == DATA[:5]
    assert [request.target[-6:] for request in store.requests] == ["turn=1", "turn=2"]
    store.answers = [HttpResponse(status=status)] * 2
    with pytest.raises(StoreError) as caught:
        store.store.read_range(ORDER[0], 0, 5)
    assert str(status) in caught.value.message
    assert "turn=" not in caught.value.message
    assert len(service.requests) == 3
    assert not store.waits


def test_a_busy_store_is_retried(store: Store) -> None:
    """After a wait that grows, or the one that it asks for; a connection that broke counts as well."""
    store.answers = [HttpResponse(status=503), TransportFailure("reset", sent=True)]
    assert store.store.read_range(ORDER[0], 0, 5) == DATA[:5]
    store.answers = [HttpResponse(status=429, headers={"retry-after": "7"})]
    assert store.store.read_range(ORDER[0], 0, 5) == DATA[:5]
    assert store.waits == [0.05, 0.1, 7.05]
    store.answers = [HttpResponse(status=500)] * 3
    with pytest.raises(StoreError, match="500"):
        store.store.read(ORDER[0])
    store.answers = [TransportFailure("bad certificate", sent=False, transient=False)]
    with pytest.raises(StoreError, match="bad certificate"):
        store.store.read(ORDER[0])


@pytest.mark.parametrize(
    "answer",
    [
        HttpResponse(status=206, body=DATA[:5]),
        HttpResponse(status=206, headers={"content-range": "bytes 1-5/200"}, body=DATA[1:6]),
        HttpResponse(status=206, headers={"content-range": "bytes 0-9/200"}, body=DATA[:10]),
        HttpResponse(status=307, headers={"location": "https://elsewhere/"}),
        HttpResponse(status=304),
    ],
)
def test_an_answer_that_is_none_is_an_error(store: Store, answer: HttpResponse) -> None:
    """Wrong bytes are never taken for right ones, and a redirect is not followed."""
    store.answers = [answer]
    with pytest.raises(StoreError):
        store.store.read_range(ORDER[0], 0, 5)


def test_a_block_that_is_gone_or_another_is_noticed(store: Store) -> None:
    """By status, by etag and by size."""
    store.answers = [HttpResponse(status=404)]
    with pytest.raises(ObjectNotFound):
        store.store.stat(ORDER[0])
    store.etag = '"other"'
    with pytest.raises(BlockReplaced):
        store.store.stat(ORDER[0])
    headers = {"content-range": "bytes 0-0/201", "etag": '"etag"'}
    store.answers = [HttpResponse(status=206, headers=headers, body=b"x")]
    with pytest.raises(BlockReplaced):
        store.store.stat(ORDER[0])


def test_nothing_can_be_written_or_listed(store: Store) -> None:
    """Nothing is even sent."""
    read_only: list[Callable[[], object]] = [
        lambda: store.store.put(ORDER[0], b""),
        lambda: store.store.expand("s3://b"),
        lambda: store.store.list("s3://b"),
        lambda: store.store.delete(ORDER[0]),
        lambda: store.store.delete_many([ORDER[0]]),
    ]
    for call in read_only:
        with pytest.raises(StoreError):
            call()
    assert not store.requests


def test_no_text_of_a_url_shows_it(urls: BlockUrls) -> None:
    """What is printed of it while something is searched for gives nothing away."""
    assert "https:" not in repr(urls.of(ORDER[0]))
