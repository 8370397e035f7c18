import gzip

import numpy as np
import pytest

from keras_bft.evaluation import Ranking


def make_ranking(ranks, **kwargs):
    num_users = len(ranks)
    fields = {
        "targets": np.arange(1, num_users + 1),
        "history_lengths": np.full(num_users, 3),
        "users": np.arange(num_users),
        "num_items": 50,
        "filter_seen": True,
    }
    return Ranking(ranks=np.array(ranks, dtype="float64"), **fields | kwargs)


def test_measures_have_known_values():
    ranking = make_ranking([1, 2.5, 3, 10, 11, np.inf])
    assert ranking.hits(10).tolist() == [1, 1, 1, 1, 0, 0]
    assert ranking.hits(2).tolist() == [1, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(
        ranking.ndcgs(10),
        [1, np.log(2) / np.log(3.5), 0.5, np.log(2) / np.log(11), 0, 0],
    )
    np.testing.assert_allclose(
        ranking.reciprocal_ranks(), [1, 0.4, 1 / 3, 0.1, 1 / 11, 0]
    )
    assert ranking.hit_rate(10) == pytest.approx(4 / 6)
    assert ranking.ndcg(3) == pytest.approx(
        (1 + np.log(2) / np.log(3.5) + 0.5) / 6
    )
    assert ranking.mrr() == pytest.approx((1.5 + 1 / 3 + 1 / 11) / 6)
    assert ranking.num_unhittable == 1


def test_a_list_longer_than_the_catalogue_holds_all_that_is_ranked():
    ranking = make_ranking([1, 50, np.inf])
    assert ranking.hits(1000).tolist() == [1, 1, 0]


def test_summary_and_names_agree_with_the_methods():
    ranking = make_ranking([1, 4, 7, 40])
    summary = ranking.summary(ks=(5, 10))
    assert list(summary) == ["hr@5", "ndcg@5", "hr@10", "ndcg@10", "mrr"]
    assert summary["hr@5"] == 0.5
    assert summary["hr@10"] == 0.75
    for name, value in summary.items():
        assert ranking.per_user(name).mean() == value


@pytest.mark.parametrize("metric", ["hr", "hr@", "map@10", "ndcg@x", "hr@-1"])
def test_an_unknown_measure_is_refused(metric):
    with pytest.raises(ValueError, match=f"Received: metric='{metric}'"):
        make_ranking([1]).per_user(metric)


@pytest.mark.parametrize("k", [0, -1, 2.5])
def test_a_list_length_must_be_a_positive_integer(k):
    with pytest.raises(ValueError, match=f"Received: k={k}"):
        make_ranking([1]).hits(k)


def test_where_keeps_the_users_of_the_mask():
    ranking = make_ranking([1, 20, 3], users=np.array(["a", "b", "c"]))
    part = ranking.where(np.array([True, False, True]))
    assert part.ranks.tolist() == [1, 3]
    assert part.users.tolist() == ["a", "c"]
    assert part.targets.tolist() == [1, 3]
    assert part.num_items == 50
    assert part.hit_rate(10) == 1.0
    with pytest.raises(ValueError, match="boolean array"):
        ranking.where(np.array([0, 2]))


def test_no_users_have_no_mean():
    nobody = make_ranking([1, 2]).where(np.zeros(2, dtype=bool))
    with pytest.raises(ValueError, match="num_users=0"):
        nobody.hit_rate(10)


def test_fields_must_be_equally_long():
    with pytest.raises(ValueError, match="`targets` must have the shape"):
        make_ranking([1, 2], targets=np.array([1]))


def test_csv_round_trip(tmp_path):
    path = tmp_path / "ranks.csv"
    users = np.array(['u,"1"', "ü", "007"])
    ranking = make_ranking([1, 2.5, np.inf], users=users, filter_seen=False)
    ranking.to_csv(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "user,target,history_length,rank,filter_seen,num_items"
    assert lines[3] == "007,3,3,inf,0,50"
    loaded = Ranking.from_csv(path)
    assert loaded.users.tolist() == users.tolist()
    assert loaded.ranks.tolist() == ranking.ranks.tolist()
    assert loaded.targets.tolist() == ranking.targets.tolist()
    assert loaded.history_lengths.tolist() == [3, 3, 3]
    assert loaded.filter_seen is False
    assert loaded.num_items == 50
    ranking.to_csv(tmp_path / "ranks.csv.gz")
    packed = gzip.decompress((tmp_path / "ranks.csv.gz").read_bytes())
    assert packed == path.read_bytes()
    loaded = Ranking.from_csv(tmp_path / "ranks.csv.gz")
    assert loaded.ranks.tolist() == ranking.ranks.tolist()


@pytest.mark.parametrize("text", ["", "user,rank\n1,2\n"])
def test_another_csv_is_refused(tmp_path, text):
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match="written by `Ranking.to_csv`"):
        Ranking.from_csv(path)


HEADER = "user,target,history_length,rank,filter_seen,num_items\n"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (b"a,3,5,1.0,1\n", "Every row must have"),
        (b"a,3,5,1.0,1,9,9\n", "Every row must have"),
        (b"a,x,5,1.0,1,9\n", "Every row must have"),
        (b"a,9223372036854775808,5,1.0,1,9\n", "Every row must have"),
        (b"a,3,5,1.0,2,9\n", "Every row must have"),
        (b"a,3,5,1.0,1,9\nb,3,5,1.0,0,9\n", "Every row must have"),
        (b"a,3,5,1.0,1,9\nb,3,5,1.0,1,8\n", "Every row must have"),
        (b"a,3,5,nan,1,9\n", r"`ranks` count from 1.*ranks\[0\]=nan"),
        (b"a,3,5,0.5,1,9\n", r"`ranks` count from 1.*ranks\[0\]=0.5"),
        (b"a,0,5,1.0,1,9\n", r"`targets` count from 1.*targets\[0\]=0"),
        (b"a,3,-5,1.0,1,9\n", "`history_lengths` count from 0"),
        (b"\xff,3,5,1.0,1,9\n", "written by `Ranking.to_csv`"),
        (b"a" * 200_000, "written by `Ranking.to_csv`"),
    ],
)
def test_damaged_rows_are_refused(tmp_path, rows, message):
    path = tmp_path / "ranks.csv"
    path.write_bytes(HEADER.encode() + rows)
    with pytest.raises(ValueError, match=message) as raised:
        Ranking.from_csv(path)
    assert f"path={str(path)!r}" in str(raised.value)
    packed = tmp_path / "ranks.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes())[:-9])
    with pytest.raises(ValueError, match="whole gzip file.*ranks.csv.gz"):
        Ranking.from_csv(packed)
