"""Class names of the COCO data set, which most published weights were trained on."""

from __future__ import annotations

# The 90 categories as first announced. Ten of them never got a label: networks that keep the
# original numbering have an output for them all the same.
COCO_90 = (
    'person', 'bicycle', 'car', 'motorcycle', 'airplane', 'bus', 'train', 'truck', 'boat',
    'traffic light', 'fire hydrant', 'street sign', 'stop sign', 'parking meter', 'bench',
    'bird', 'cat', 'dog', 'horse', 'sheep', 'cow', 'elephant', 'bear', 'zebra', 'giraffe', 'hat',
    'backpack', 'umbrella', 'shoe', 'eye glasses', 'handbag', 'tie', 'suitcase', 'frisbee',
    'skis', 'snowboard', 'sports ball', 'kite', 'baseball bat', 'baseball glove', 'skateboard',
    'surfboard', 'tennis racket', 'bottle', 'plate', 'wine glass', 'cup', 'fork', 'knife',
    'spoon', 'bowl', 'banana', 'apple', 'sandwich', 'orange', 'broccoli', 'carrot', 'hot dog',
    'pizza', 'donut', 'cake', 'chair', 'couch', 'potted plant', 'bed', 'mirror', 'dining table',
    'window', 'desk', 'toilet', 'door', 'tv', 'laptop', 'mouse', 'remote', 'keyboard',
    'cell phone', 'microwave', 'oven', 'toaster', 'sink', 'refrigerator', 'blender', 'book',
    'clock', 'vase', 'scissors', 'teddy bear', 'hair drier', 'toothbrush',
)

_UNLABELLED = frozenset((
    'street sign', 'hat', 'shoe', 'eye glasses', 'plate', 'mirror', 'window', 'desk', 'door',
    'blender',
))

COCO_80 = tuple(name for name in COCO_90 if name not in _UNLABELLED)


def default_names(count: int) -> tuple[str, ...]:
    """Return COCO's names for 80 or 90 classes, and numbered names for any other count."""
    known = {len(COCO_80): COCO_80, len(COCO_90): COCO_90}
    return known.get(count, tuple(f'class{index}' for index in range(count)))
