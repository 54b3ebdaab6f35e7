// Which ranks are named for holding the others up.
#define BOOST_TEST_MODULE slow_ranks
#include <boost/test/unit_test.hpp>

#include "watch/slow_ranks.hpp"

using namespace lockstep::watch;

namespace {

constexpr std::int64_t window = 20;

// A rule for ranks of these stages, fed window by window.
class Course {
  public:
    explicit Course(const std::vector<int>& stages) : Course(stages, hosts(stages.size())) {}
    Course(const std::vector<int>& stages, const std::vector<std::string>& hosts, bool own_devices = false)
        : rule_(stages, hosts, own_devices, window) {}
    // The same means in so many windows; what was said.
    std::vector<SlowRankRule::Remark> windows(int count, const std::vector<double>& means) {
        std::vector<SlowRankRule::Remark> all;
        for (int i = 0; i < count; ++i)
            for (auto& remark : rule_.judge(means, step_ += window)) all.push_back(std::move(remark));
        return all;
    }

  private:
    static std::vector<std::string> hosts(std::size_t ranks) {
        std::vector<std::string> names;
        for (std::size_t rank = 0; rank < ranks; ++rank) names.push_back("n" + std::to_string(rank));
        return names;
    }
    SlowRankRule rule_;
    std::int64_t step_ = 0;
};

bool names(const SlowRankRule::Remark& remark, int rank) {
    return remark.sentence.rfind("rank " + std::to_string(rank) + " (host n" + std::to_string(rank) + ")", 0) == 0;
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_slow_rank_is_named_after_three_windows) {
    Course course({0, 0, 0, 0});
    const std::vector<double> means = {0.035, 0.034, 0.035, 0.042};
    BOOST_TEST(course.windows(2, means).empty());
    const auto remarks = course.windows(1, means);
    BOOST_TEST_REQUIRE(remarks.size() == 1u);
    BOOST_TEST(remarks[0].slow);
    BOOST_TEST(remarks[0].sentence ==
               "rank 3 (host n3) is 20 % slower per step than the median of the 4 ranks with the same part of the "
               "model (42.0 vs 35.0 ms) in the last 60 timed steps, up to step 60: check its node (clocks, "
               "temperature, other jobs)");
}

BOOST_AUTO_TEST_CASE(ranks_that_are_alike_are_not_named) {
    Course course({0, 0, 0});
    BOOST_TEST(course.windows(10, {0.035, 0.036, 0.038}).empty());
}

BOOST_AUTO_TEST_CASE(one_good_window_starts_the_count_anew) {
    Course course({0, 0, 0});
    const std::vector<double> slow = {0.05, 0.03, 0.03}, good = {0.03, 0.03, 0.03};
    for (int i = 0; i < 5; ++i) {
        BOOST_TEST(course.windows(2, slow).empty());
        BOOST_TEST(course.windows(1, good).empty());
    }
}

BOOST_AUTO_TEST_CASE(of_two_the_faster_one_is_the_reference) {
    Course course({0, 0});
    const auto remarks = course.windows(5, {0.05, 0.03});
    BOOST_TEST_REQUIRE(remarks.size() == 1u);
    BOOST_TEST(names(remarks[0], 0));
}

// There it is noise: either may be the odd one, and the host's other work makes them differ.
BOOST_AUTO_TEST_CASE(two_that_share_one_hosts_processors_are_not_compared) {
    const std::vector<std::string> here(4, "n0");
    BOOST_TEST(Course({0, 0}, {"n0", "n0"}).windows(9, {0.05, 0.03}).empty());
    BOOST_TEST(Course({0, 0, 1, 1}, here).windows(9, {0.05, 0.03, 0.05, 0.03}).empty());
    // Two GPUs should be alike, and of three ranks two agree.
    const auto gpus = Course({0, 0}, {"n0", "n0"}, true).windows(3, {0.05, 0.03});
    BOOST_TEST_REQUIRE(gpus.size() == 1u);
    BOOST_TEST(gpus[0].sentence.ends_with("check its GPU (clocks, temperature, other programs)"));
    const auto three = Course({0, 0, 0}, {"n0", "n0", "n0"}).windows(3, {0.05, 0.03, 0.03});
    BOOST_TEST_REQUIRE(three.size() == 1u);
    BOOST_TEST(three[0].sentence.ends_with("check its cores (other programs, clocks)"));
}

BOOST_AUTO_TEST_CASE(stages_are_compared_with_themselves) {
    Course course({0, 0, 1, 1});
    BOOST_TEST(course.windows(5, {0.01, 0.01, 0.05, 0.05}).empty());
    Course other({0, 0, 1, 1});
    const auto remarks = other.windows(3, {0.01, 0.02, 0.05, 0.05});
    BOOST_TEST_REQUIRE(remarks.size() == 1u);
    BOOST_TEST(names(remarks[0], 1));
    Course alone({0, 1, 2});
    BOOST_TEST(alone.windows(5, {0.01, 0.02, 0.05}).empty());
}

BOOST_AUTO_TEST_CASE(one_rank_has_nobody_to_compare_with) {
    Course course({0});
    BOOST_TEST(course.windows(5, {0.05}).empty());
}

BOOST_AUTO_TEST_CASE(less_than_a_millisecond_is_nothing) {
    Course course({0, 0, 0});
    BOOST_TEST(course.windows(10, {0.0050, 0.0050, 0.0059}).empty());
    BOOST_TEST(course.windows(3, {0.0050, 0.0050, 0.0065}).size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_rank_recovers_and_may_be_named_again) {
    Course course({0, 0, 0});
    const std::vector<double> slow = {0.03, 0.05, 0.03}, good = {0.03, 0.03, 0.03};
    BOOST_TEST(course.windows(3, slow).size() == 1u);
    BOOST_TEST(course.windows(10, slow).empty());
    BOOST_TEST(course.windows(2, good).empty());
    const auto remarks = course.windows(1, good);
    BOOST_TEST_REQUIRE(remarks.size() == 1u);
    BOOST_TEST(!remarks[0].slow);
    BOOST_TEST(names(remarks[0], 1));
    BOOST_TEST(course.windows(10, good).empty());
    const auto again = course.windows(3, slow);
    BOOST_TEST_REQUIRE(again.size() == 1u);
    BOOST_TEST(again[0].slow);
}

BOOST_AUTO_TEST_CASE(a_rank_that_stays_slow_is_named_every_thousand_steps) {
    Course course({0, 0, 0});
    const std::vector<double> slow = {0.03, 0.05, 0.03};
    BOOST_TEST(course.windows(3, slow).size() == 1u);
    BOOST_TEST(course.windows(49, slow).empty());
    BOOST_TEST(course.windows(1, slow).size() == 1u);
    BOOST_TEST(course.windows(50, slow).size() == 1u);
}
