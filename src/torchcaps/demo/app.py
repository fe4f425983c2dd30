"""The HTTP service: its paths, its page and documentation, and its error responses."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse

from torchcaps import __version__
from torchcaps.demo.guard import MAX_VALUES, Guard, ServiceMetrics
from torchcaps.demo.results import PaperResults, ResultsReader
from torchcaps.demo.schemas import (
    LONGEST_SIDE,
    AttackRequest,
    AttackResponse,
    ErrorResponse,
    LabeledRequest,
    ModelInfo,
    ModelName,
    PredictRequest,
    PredictResponse,
    ReconstructRequest,
    ReconstructResponse,
    RoutingResponse,
    SampleImages,
)
from torchcaps.demo.served import ServedModel
from torchcaps.demo.service import QueueFullError, Service, UnknownModelError
from torchcaps.demo.uploads import UPLOAD_SCHEMA
from torchcaps.errors import TorchcapsError

PAGE_FOLDER = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
ABOUT = "Query capsule networks: predictions, vote maps of the routing, reconstructions and adversarial attacks."
IMAGE_FORMS = (
    f"give 8 to {LONGEST_SIDE} rows of as many pixels in [0, 1], or one to three such channels, "
    "or a base64-encoded image file"
)
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorResponse, "description": "The body is not JSON."},
    401: {"model": ErrorResponse, "description": "The token is missing or wrong."},
    404: {"model": ErrorResponse, "description": "The model does not exist."},
    408: {"model": ErrorResponse, "description": "The request did not arrive in time."},
    413: {"model": ErrorResponse, "description": "The request is too large."},
    422: {"model": ErrorResponse, "description": "A value is out of range or does not fit the model."},
    429: {"model": ErrorResponse, "description": "Too many requests from this address are waiting: retry later."},
    500: {"model": ErrorResponse, "description": "Internal error."},
    503: {
        "model": ErrorResponse,
        "description": "Too many requests are waiting, or this one took too long: retry later.",
    },
}


def create_app(
    served: list[ServedModel],
    *,
    page: bool = True,
    results: Path | None = None,
    hosts: Iterable[str] | None = None,
    token: str | None = None,
    onnxruntime: bool = False,
) -> FastAPI:
    """Create the service for these models.

    Args:
        served: the models.
        page: also serve the demo page.
        results: a folder of reproduction results to show on the page.
        hosts: accepted host names; None for any.
        token: what clients must send as ``Authorization: Bearer TOKEN``; None for no authentication.
        onnxruntime: let it compute predictions of single images where it is faster, if it is installed.
    """
    service, metrics, reader = Service(served, onnxruntime=onnxruntime), ServiceMetrics(), ResultsReader(results)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(service.warm_up())
        yield
        warming.cancel()
        reader.stop()
        service.stop()

    app = FastAPI(
        title="torchcaps",
        description=ABOUT,
        version=__version__,
        docs_url=None,  # FastAPI's own pages load scripts from another host
        redoc_url=None,
        lifespan=life,
        responses=PROBLEMS,
    )
    app.state.metrics = metrics  # connections send responses too
    add_docs(app)
    if page:
        add_page(app)
    else:
        add_index(app)
    # These files are in every copy of torchcaps, and a browser cannot send a token for them.
    public_paths = [*paths_of(app), "/health"]
    add_queries(app, service)
    add_monitoring(app, service, metrics)
    add_error_handlers(app)
    if page:

        @app.get("/api/results", summary="Reproduction results", response_model=list[PaperResults])
        async def show_results() -> Response:
            return Response(await reader.read(), media_type="application/json")

    poses = [len(info.class_names) * (info.pose_size or 0) for info in service.infos]
    app.add_middleware(
        Guard,
        metrics=metrics,
        paths=paths_of(app),
        hosts=hosts,
        token=token,
        public_paths=public_paths,
        max_values=MAX_VALUES + max(poses),
    )
    return app


def add_index(app: FastAPI) -> None:
    """Say at ``/`` where to look, if there is no page."""

    @app.get("/", include_in_schema=False)
    async def index() -> dict[str, str]:
        return {
            "service": f"torchcaps {__version__}",
            "documentation": "/docs",
            "models": "GET /api/models",
            "prediction": "POST /api/predict, with an image file: curl -F image=@digit.png ADDRESS/api/predict",
        }


def paths_of(app: FastAPI) -> list[str]:
    """Return the paths that were added so far."""
    return [route.path for route in app.routes if hasattr(route, "path")]


def add_queries(app: FastAPI, service: Service) -> None:
    """Add the paths that query a model."""

    @app.get("/api/models", summary="List the models")
    async def list_models() -> list[ModelInfo]:
        return service.infos

    @app.get("/api/samples", summary="Test images of a model's dataset")
    async def samples(model: ModelName | None = None) -> SampleImages:
        return await service.samples(model)

    @app.post(
        "/api/predict", summary="Classify an image", response_model_exclude_none=True, openapi_extra=UPLOAD_SCHEMA
    )
    async def predict(request: PredictRequest) -> PredictResponse:
        return await service.predict(request)

    @app.post("/api/reconstruct", summary="Reconstruct images from a pose")
    async def reconstruct(request: ReconstructRequest) -> ReconstructResponse:
        return await service.reconstruct(request)

    @app.post("/api/routing", summary="Vote maps of a class per routing iteration")
    async def routing(request: LabeledRequest) -> RoutingResponse:
        return await service.routing(request)

    @app.post("/api/attack", summary="Attack an image")
    async def attack(request: AttackRequest) -> AttackResponse:
        return await service.attack(request)


def add_monitoring(app: FastAPI, service: Service, metrics: ServiceMetrics) -> None:
    """Add the paths for monitoring."""

    @app.get("/health", summary="Health check")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics", summary="Prometheus metrics", response_class=PlainTextResponse)
    async def show_metrics() -> str:
        return metrics.text(service.workers)


def add_error_handlers(app: FastAPI) -> None:
    """Turn exceptions into error responses of one sentence, always valid UTF-8."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "body"
        message = first["msg"]
        if where.startswith("image"):  # it matched none of the three forms
            where, message = "image", IMAGE_FORMS
        return problem(422, f"{where}: {message}".encode("utf-8", "replace").decode())

    @app.exception_handler(TorchcapsError)
    async def user_error(_: Request, error: TorchcapsError) -> JSONResponse:
        return problem(404 if isinstance(error, UnknownModelError) else 422, str(error))

    @app.exception_handler(QueueFullError)
    async def busy(_: Request, __: QueueFullError) -> JSONResponse:
        return problem(503, "too many requests are waiting: retry in a second")

    @app.exception_handler(TimeoutError)
    async def late(_: Request, __: TimeoutError) -> JSONResponse:
        return problem(503, "the request took too long: retry in a second")


def problem(status: int, sentence: str) -> JSONResponse:
    """Return an error response."""
    headers = {"retry-after": "1"} if status == 503 else {}
    return JSONResponse({"detail": sentence}, status_code=status, headers=headers)


def add_page(app: FastAPI) -> None:
    """Serve the page at ``/``, and its style sheets and scripts under ``/page``."""
    add_file(app, "/", PAGE_FOLDER / "index.html")
    for path in sorted(PAGE_FOLDER.rglob("*")):
        if path.suffix in TYPES and not path.name.startswith("docs") and path.name != "index.html":
            add_file(app, f"/page/{path.relative_to(PAGE_FOLDER).as_posix()}", path)


def add_docs(app: FastAPI) -> None:
    """Serve the API documentation at ``/docs``, which is built in the browser from ``/openapi.json``."""
    add_file(app, "/docs", PAGE_FOLDER / "docs.html")
    for name in ("docs.js", "docs.css"):
        add_file(app, f"/{name}", PAGE_FOLDER / name)


def add_file(app: FastAPI, path: str, file: Path) -> None:
    """Serve one file, read once: no path of a request ever reaches the file system. Browsers revalidate by ETag."""
    content, kind = file.read_bytes(), TYPES[file.suffix]
    etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    app.get(path, include_in_schema=False)(_sender(content, kind, etag))


def _sender(content: bytes, kind: str, etag: str) -> Callable[[Request], Awaitable[Response]]:
    async def send(request: Request) -> Response:
        headers = {"etag": etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)

    # FastAPI cannot resolve the annotations of a nested function by name.
    send.__annotations__ = {"request": Request, "return": Response}
    return send
