"""The paper in NumPy loops, float64: the oracle of the loss tests.

Nothing here is shared with the package; it is written from the equations.
"""

import numpy as np


def _positives_within_cap(anchor, positives, samples, views, cap):
    """The anchor's other views, next positives in cyclic order, the queue."""
    if cap is None:
        return positives
    view_positives = [p for p in positives if p[0] == anchor[0]]
    room = cap - (views - 1)
    next_positives = []
    order = [(anchor[0] + step) % samples for step in range(1, samples)]
    queued = sorted(row[0] for row in positives if row[0] >= samples)
    for sample in order + queued:
        for row in positives:
            if row[0] == sample and len(next_positives) < room:
                next_positives.append(row)
    return view_positives + next_positives


def anchor_loss(
    z,
    anchor,
    weight,
    rows,
    *,
    temperature,
    formulation="out",
    denominator="all",
    cap=None,
    samples=None,
    margin=0.0,
    hardness=0.0,
    spread=0.0,
    constants=None,
):
    """L_i of one anchor. `weight(i, p)` is the weight of p as a positive."""
    samples, views = samples or len(z), len(z[0])

    def dot(rows, row):
        return np.dot(rows[anchor[0]][anchor[1]], rows[row[0]][row[1]])

    def e(row):
        return np.exp(dot(z, row) / temperature)

    def harder(row):
        return np.exp(
            hardness * dot(z if constants is None else constants, row)
        )

    contrasts = [row for row in rows if row != anchor]  # A(i)
    every_positive = [row for row in contrasts if weight(anchor, row) > 0]
    negatives = [row for row in contrasts if row not in every_positive]  # N(i)
    positives = _positives_within_cap(  # P(i)
        anchor, every_positive, samples, views, cap
    )
    if not positives:
        return 0.0
    if denominator == "only_negatives" and not negatives:
        return 0.0
    total = sum(weight(anchor, p) for p in positives)
    log_sum, inside = 0.0, 0.0
    for p in positives:
        d = sum(e(n) * harder(n) for n in negatives)
        if denominator == "all":
            d += sum(e(q) for q in positives)
        elif denominator in ("one_positive", "sincere"):
            d += e(p) * np.exp(-margin)
        log_sum += weight(anchor, p) * np.log(e(p) / d)
        inside += weight(anchor, p) * e(p) / d
    value = -log_sum / total if formulation == "out" else 0.0
    if formulation == "in":
        value = -np.log(inside / total)
    if not spread:
        return value
    positive_sum = sum(e(p) for p in positives)
    pairs = [(p, weight(anchor, p)) for p in positives if p[0] == anchor[0]]
    view_weight = sum(w for _, w in pairs)
    nearness = sum(w * np.log(e(p)) for p, w in pairs) / view_weight
    return (1 - spread) * value + spread * (np.log(positive_sum) - nearness)


def shared_labels(kind, a, b):
    """Weight of two samples as positives, by their labels as sets."""
    a, b = set(a), set(b)
    if kind == "any":
        return float(bool(a & b))
    if kind == "all":
        return float(a == b and bool(a))
    return len(a & b) / len(a | b) if a | b else 0.0


def supcon_loss(
    z,
    labels=None,
    *,
    temperature,
    formulation="out",
    denominator="all",
    anchor_views="all",
    positives=None,
    positives_cap=None,
    positive_mask=None,
    scale_by_temperature=True,
    margin=0.0,
    hardness=0.0,
    spread=0.0,
    unsupervised_classes=(),
    constants=None,
    queue=(),
    queue_labels=(),
):
    """[batch] losses of z [batch, views, dim], averaged over anchor views.

    A row of the queue is a further sample with one view, and no anchor. With
    `positives` the labels of a sample are the ones of its row. By `constants`,
    like z, negatives are weighed, for differences that must not change them.
    """
    z = np.asarray(z, np.float64)
    samples, views = z.shape[:2]
    labels = np.arange(samples) if labels is None else np.asarray(labels)
    labels = [*labels, *queue_labels]
    z = [*z, *np.asarray(queue, np.float64)[:, None]] if len(queue) else z

    def weight(i, p):
        if positive_mask is not None:
            return float(positive_mask[i[0]][p[0]])
        if positives is not None:
            if positives in ("soft", "cosine"):
                a, b = (np.asarray(labels[row[0]], float) for row in (i, p))
                norms = np.linalg.norm(a) * np.linalg.norm(b)
                scale = norms if positives == "cosine" and norms else 1.0
                return a @ b / scale
            if i[0] == p[0]:
                return 1.0
            a, b = (np.flatnonzero(labels[row[0]]) for row in (i, p))
            return shared_labels(positives, a, b)
        if labels[i[0]] in unsupervised_classes:
            return float(i[0] == p[0])
        return float(labels[i[0]] == labels[p[0]])

    rows = [(s, v) for s in range(len(z)) for v in range(len(z[s]))]
    anchor_count = views if anchor_views == "all" else 1
    losses = np.zeros(samples)
    for sample in range(samples):
        for view in range(anchor_count):
            losses[sample] += anchor_loss(
                z,
                (sample, view),
                weight,
                rows,
                temperature=temperature,
                formulation=formulation,
                denominator=denominator,
                cap=positives_cap,
                samples=samples,
                margin=margin,
                hardness=hardness,
                spread=spread,
                constants=constants,
            )
    scale = temperature if scale_by_temperature else 1.0
    return scale * losses / anchor_count


def rank_n_contrast_loss(z, labels, temperature):
    """[batch] losses of z [batch, views, dim], of Zha et al. 2023.

    Labels are numbers, [batch] or [batch, targets].
    """
    z = np.asarray(z, np.float64)
    labels = np.asarray(labels, np.float64)
    rows = [(s, v) for s in range(len(z)) for v in range(len(z[0]))]
    losses = np.zeros(len(z))
    for i in rows:
        contrasts = [row for row in rows if row != i]
        f = {
            k: -np.sqrt(np.sum((z[i] - z[k]) ** 2)) / temperature
            for k in contrasts
        }
        d = {k: np.sum(np.abs(labels[i[0]] - labels[k[0]])) for k in contrasts}
        for j in contrasts:
            farther = [np.exp(f[k]) for k in contrasts if d[k] >= d[j]]
            share = np.exp(f[j]) / np.sum(farther)
            losses[i[0]] -= np.log(share) / len(contrasts)
    return losses / len(z[0])


def anchor_gradient(z_i, contrasts, is_positive, temperature, formulation):
    """dL_i / dz_i with all other rows constant: Suppl. Eq. 8 and 9."""
    e = np.array([np.exp(np.dot(z_i, a) / temperature) for a in contrasts])
    p_ia = e / e.sum()  # Suppl. Eq. 4
    gradient = np.zeros_like(z_i)
    for a, row in enumerate(contrasts):
        if is_positive[a]:
            if formulation == "out":
                x_ip = 1.0 / np.sum(is_positive)
            else:
                x_ip = e[a] / e[np.asarray(is_positive, bool)].sum()
            gradient += row * (p_ia[a] - x_ip)
        else:
            gradient += row * p_ia[a]
    return gradient / temperature


def finite_differences(function, point, step=1e-6):
    """Central differences of a scalar function of a float64 array."""
    point = np.array(point, np.float64)
    gradient = np.zeros_like(point)
    for index in np.ndindex(*point.shape):
        ahead, behind = point.copy(), point.copy()
        ahead[index] += step
        behind[index] -= step
        gradient[index] = (function(ahead) - function(behind)) / (2 * step)
    return gradient
