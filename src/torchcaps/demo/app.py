"""The HTTP service: its paths, its documentation, and how mistakes are answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse

from torchcaps import __version__
from torchcaps.demo.guard import MOST_VALUES, Guard, ServiceMetrics
from torchcaps.demo.results import PaperResults, ResultsReader
from torchcaps.demo.schemas import (
    LONGEST_SIDE,
    AttackRequest,
    AttackResponse,
    ErrorResponse,
    ImageRequest,
    LabeledRequest,
    ModelInfo,
    ModelName,
    PredictResponse,
    ReconstructRequest,
    ReconstructResponse,
    RoutingResponse,
    SampleImages,
)
from torchcaps.demo.served import ServedModel
from torchcaps.demo.server import add_docs, add_page
from torchcaps.demo.service import QueueFullError, Service, UnknownModelError
from torchcaps.errors import TorchcapsError

ABOUT = "Ask capsule networks: what they see in an image, where their votes went, what their capsules draw."
IMAGE_FORMS = (
    f"give 8 to {LONGEST_SIDE} rows of as many pixels in [0, 1], or one to three such planes, "
    "or a picture file in base64"
)
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorResponse, "description": "The body is not JSON."},
    401: {"model": ErrorResponse, "description": "The service needs a token, and this is not it."},
    404: {"model": ErrorResponse, "description": "There is no such model."},
    408: {"model": ErrorResponse, "description": "The request did not arrive in time."},
    413: {"model": ErrorResponse, "description": "The request is too large."},
    422: {"model": ErrorResponse, "description": "Something in the request is out of range or does not fit the model."},
    429: {"model": ErrorResponse, "description": "Too many requests of this address are waiting: come again."},
    500: {"model": ErrorResponse, "description": "The service failed."},
    503: {
        "model": ErrorResponse,
        "description": "Too many requests are waiting, or this one took too long: come again.",
    },
}


def create_app(
    served: list[ServedModel],
    *,
    page: bool = True,
    results: Path | None = None,
    hosts: Iterable[str] | None = None,
    token: str | None = None,
) -> FastAPI:
    """The service for these models.

    Args:
        served: the models.
        page: also serve the page that people look at.
        results: a folder of reproduced results, which the page shows.
        hosts: names by which the service may be called; None: any.
        token: what clients must send as ``Authorization: Bearer TOKEN``; None: nothing.
    """
    service, metrics, reader = Service(served), ServiceMetrics(), ResultsReader(results)

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
        docs_url=None,  # FastAPI's own pages load their scripts from another host
        redoc_url=None,
        lifespan=life,
        responses=PROBLEMS,
    )
    app.state.metrics = metrics  # for connections, which also answer
    add_docs(app)
    if page:
        add_page(app)
    # The same files are in every copy of torchcaps, and a browser can send no token for them.
    public_paths = [*paths_of(app), "/health"]
    add_answers(app, service)
    add_state(app, service, metrics)
    add_problems(app)
    if page:

        @app.get("/api/results", summary="The reproduction in the folder", response_model=list[PaperResults])
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
        most_values=MOST_VALUES + max(poses),
    )
    return app


def paths_of(app: FastAPI) -> list[str]:
    """The paths that a service has so far."""
    return [route.path for route in app.routes if hasattr(route, "path")]


def add_answers(app: FastAPI, service: Service) -> None:
    """The questions that can be asked."""

    @app.get("/api/models", summary="The models that are served")
    async def list_models() -> list[ModelInfo]:
        return service.infos

    @app.get("/api/samples", summary="Test images of a model's dataset")
    async def samples(model: ModelName) -> SampleImages:
        return await service.samples(model)

    @app.post("/api/predict", summary="What a model sees in an image")
    async def predict(question: ImageRequest) -> PredictResponse:
        return await service.predict(question)

    @app.post("/api/reconstruct", summary="What the decoder draws of a pose")
    async def reconstruct(question: ReconstructRequest) -> ReconstructResponse:
        return await service.reconstruct(question)

    @app.post("/api/routing", summary="Which places voted for a class, iteration by iteration")
    async def routing(question: LabeledRequest) -> RoutingResponse:
        return await service.routing(question)

    @app.post("/api/attack", summary="Change an image until the answer is wrong")
    async def attack(question: AttackRequest) -> AttackResponse:
        return await service.attack(question)


def add_state(app: FastAPI, service: Service, metrics: ServiceMetrics) -> None:
    """How the service is."""

    @app.get("/health", summary="Whether the service is alive")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics", summary="Counters for Prometheus", response_class=PlainTextResponse)
    async def show_metrics() -> str:
        return metrics.text(service.workers)


def add_problems(app: FastAPI) -> None:
    """Mistakes become one sentence; nothing of a request is repeated that could not be written as text."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "body"
        said = first["msg"]
        if where.startswith("image"):  # one of three forms: which of them was meant, nobody knows
            where, said = "image", IMAGE_FORMS
        return problem(422, f"{where}: {said}".encode("utf-8", "replace").decode())

    @app.exception_handler(TorchcapsError)
    async def mistaken(_: Request, error: TorchcapsError) -> JSONResponse:
        return problem(404 if isinstance(error, UnknownModelError) else 422, str(error))

    @app.exception_handler(QueueFullError)
    async def busy(_: Request, __: QueueFullError) -> JSONResponse:
        return problem(503, "too many requests are waiting: come again in a second")

    @app.exception_handler(TimeoutError)
    async def late(_: Request, __: TimeoutError) -> JSONResponse:
        return problem(503, "the answer took too long: come again in a second")


def problem(status: int, sentence: str) -> JSONResponse:
    """An answer that says why there is none."""
    headers = {"retry-after": "1"} if status == 503 else {}
    return JSONResponse({"detail": sentence}, status_code=status, headers=headers)
