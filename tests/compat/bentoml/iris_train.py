"""Saves the model of iris_service.py."""

import bentoml
from sklearn import datasets, svm

iris = datasets.load_iris()
clf = svm.SVC(gamma="scale", random_state=0)
clf.fit(iris.data, iris.target)
saved_model = bentoml.sklearn.save_model(
    "iris_clf",
    clf,
    signatures={"predict": {"batchable": True, "batch_dim": 0}},
    labels={"owner": "tests"},
    metadata={"classes": 3},
)
print(f"Model saved: {saved_model.tag}")
