"""A service of BentoML 1.0: functions that call a runner of a saved model."""

import bentoml
import numpy as np
from pydantic import BaseModel

iris_clf_runner = bentoml.sklearn.get("iris_clf:latest").to_runner()

svc = bentoml.Service("iris_classifier", runners=[iris_clf_runner])


class Flower(BaseModel):
    sepal: list
    petal: list


@svc.api(input=bentoml.io.NumpyNdarray(), output=bentoml.io.NumpyNdarray())
def classify(input_series: np.ndarray) -> np.ndarray:
    return iris_clf_runner.predict.run(input_series)


@svc.api(input=bentoml.io.JSON(), output=bentoml.io.JSON(), route="named/classify")
async def classify_named(flowers: dict) -> dict:
    rows = np.array([[*one["sepal"], *one["petal"]] for one in flowers["flowers"]])
    found = await iris_clf_runner.predict.async_run(rows)
    return {"classes": found.tolist()}


@svc.api(input=bentoml.io.JSON(pydantic_model=Flower), output=bentoml.io.JSON())
async def classify_one(flower):
    found = await iris_clf_runner.async_run([[*flower.sepal, *flower.petal]])
    return {"class": int(found[0])}


@svc.api(input=bentoml.io.PandasDataFrame(), output=bentoml.io.NumpyNdarray())
async def classify_frame(frame):
    return await iris_clf_runner.predict.async_run(frame.to_numpy())


@svc.api(input=bentoml.io.Text(), output=bentoml.io.Text())
def shout(text):
    return text.upper() + "!"


@svc.api(
    input=bentoml.io.Multipart(note=bentoml.io.Text(), numbers=bentoml.io.JSON(), document=bentoml.io.File()),
    output=bentoml.io.JSON(),
)
def together(note, numbers, document):
    return {"note": note, "sum": sum(numbers), "bytes": len(document.read())}
