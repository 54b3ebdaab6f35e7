// Parts of local checkpoints: names, who keeps whose, which belong together, and which count.
#define BOOST_TEST_MODULE checkpoint_parts
#include <array>
#include <boost/test/unit_test.hpp>

#include "checkpoint/courses.hpp"
#include "checkpoint/local.hpp"
#include "checkpoint/part_files.hpp"
#include "checkpoint_fixture.hpp"
#include "cluster/nodes.hpp"

using namespace lockstep;
using namespace lockstep::checkpoint;
using namespace lockstep::checkpoint_tests;
namespace fs = std::filesystem;

namespace {

PartFile file(std::int64_t step, int part, int parts, int node, bool copy = false, std::uint64_t header = 7) {
    return {{step, part, parts, copy}, header, node};
}

}  // namespace

BOOST_AUTO_TEST_CASE(names_are_read_back) {
    BOOST_TEST(part_file_name({100, 3, 8, false}) == "step-00000100.h5.part-0003-of-0008");
    BOOST_TEST(part_file_name({100, 3, 8, true}) == "step-00000100.h5.part-0003-of-0008.copy");
    for (const PartName& name : {PartName{1, 0, 1, false}, PartName{1234567890, 12345, 65536, true}})
        BOOST_TEST((part_of("/local/run/" + part_file_name(name)) == name));
    for (const char* other : {"step-00000100.h5", "step-00000100.h5.part-0008-of-0008", "step-00000100.h5.part-3-of-8",
                              "step-00000100.h5.part-0003-of-0008.tmp", "step-100.h5.part-0003-of-0008",
                              "step-00000100.h5.part-0003-of-0008.copy.copy", "step-00000100.h5.part--001-of-0008",
                              ".part--of-", "step-00000100.h5.part-0003", ""})
        BOOST_TEST(!part_of(other), other);
}

BOOST_AUTO_TEST_CASE(a_rank_finds_its_place_among_the_hosts) {
    const std::vector<std::string> hosts = {"b", "a", "b", "c", "a", "b"};
    const std::vector<std::array<int, 3>> places = {{0, 0, 3}, {1, 0, 2}, {0, 1, 3}, {2, 0, 1}, {1, 1, 2}, {0, 2, 3}};
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
        const cluster::RankPlace place = cluster::place_among(hosts, static_cast<int>(rank));
        BOOST_TEST(place.host == hosts[rank]);
        BOOST_TEST(place.node == places[rank][0]);
        BOOST_TEST(place.node == cluster::number_nodes(hosts)[rank]);
        BOOST_TEST(place.local_rank == places[rank][1]);
        BOOST_TEST(place.local_ranks == places[rank][2]);
        BOOST_TEST(place.hosts == hosts);
    }
}

BOOST_AUTO_TEST_CASE(partners_are_a_ring_of_nodes) {
    BOOST_TEST(cluster::number_nodes({"b", "b", "a", "b", "c"}) == (std::vector<int>{0, 0, 1, 0, 2}));
    BOOST_TEST(partners({0, 0, 0}) == (std::vector<int>{-1, -1, -1}));
    BOOST_TEST(partners({0, 1}) == (std::vector<int>{1, 0}));
    BOOST_TEST(partners({0, 0, 1, 1, 2, 2}) == (std::vector<int>{2, 3, 4, 5, 0, 1}));
    BOOST_TEST(partners({0, 1, 0, 1}) == (std::vector<int>{1, 0, 3, 2}));
    // Three ranks beside one: it keeps all of theirs, and one of them its.
    BOOST_TEST(partners({0, 0, 0, 1}) == (std::vector<int>{3, 3, 3, 0}));
    BOOST_TEST(partners({0, 1, 1, 2}) == (std::vector<int>{1, 3, 3, 0}));
}

BOOST_AUTO_TEST_CASE(a_set_is_complete_when_each_part_lies_somewhere) {
    const auto found = part_sets({
        file(10, 0, 2, 0),
        file(10, 1, 2, 1),
        file(10, 0, 2, 1, true),  // part 1's copy is lost
        file(20, 0, 2, 1, true),
        file(20, 1, 2, 1),  // node 0 is lost
        file(30, 0, 2, 0),
        file(30, 1, 2, 0, true, 8),  // of two writings of the step
        file(40, 0, 2, 0),
        file(40, 0, 2, 1, true),  // one part is lost
        file(50, 0, 1, 2),
    });
    // Of two writings of one step neither is whole.
    BOOST_TEST_REQUIRE(found.incomplete.size() == 3u);
    BOOST_TEST(found.incomplete[0].step == 40);
    BOOST_TEST(found.incomplete[0].sources[1].empty());
    BOOST_TEST(found.incomplete[1].step == 30);
    const auto& sets = found.complete;
    BOOST_TEST_REQUIRE(sets.size() == 3u);
    BOOST_TEST(sets[0].step == 50);
    BOOST_TEST(sets[0].parts == 1);
    BOOST_TEST(sets[1].step == 20);
    BOOST_TEST((sets[1].sources == std::vector<std::vector<PartSource>>{{{1, true}}, {{1, false}}}));
    BOOST_TEST(sets[2].step == 10);
    BOOST_TEST((sets[2].sources == std::vector<std::vector<PartSource>>{{{0, false}, {1, true}}, {{1, false}}}));
    BOOST_TEST(part_sets({}).complete.empty());
}

BOOST_AUTO_TEST_CASE(a_course_counts_up_to_where_the_next_began) {
    const std::vector<Course> courses = {{"a", 0}, {"b", 100}, {"c", 250}};
    BOOST_TEST(counts(courses, "a", 100));
    BOOST_TEST(!counts(courses, "a", 120));
    BOOST_TEST(counts(courses, "b", 250));
    BOOST_TEST(!counts(courses, "b", 260));
    BOOST_TEST(counts(courses, "c", 1000));
    BOOST_TEST(!counts(courses, "d", 10));
    BOOST_TEST(!counts({}, "a", 0));
    // Going back ends what was written after it, also of courses that begin later.
    BOOST_TEST(!counts({{"a", 0}, {"b", 50}}, "a", 60));
}

BOOST_AUTO_TEST_CASE(the_list_of_courses) {
    const std::string folder = empty_test_folder("courses");
    BOOST_TEST(read_courses(folder).empty());
    std::ofstream(courses_path(folder)).close();
    BOOST_CHECK_EXCEPTION(read_courses(folder), Error,
                          [](const Error& error) { return error.code() == ExitCode::damaged; });
    std::filesystem::remove(courses_path(folder));
    auto courses = begin_course(folder, {}, 0);
    courses = begin_course(folder, courses, 100);
    courses = begin_course(folder, courses, 200);
    BOOST_TEST_REQUIRE(courses.size() == 3u);
    BOOST_TEST((read_courses(folder) == courses));
    BOOST_TEST(courses[0].name != courses[1].name);
    // Back to step 150: the third has nothing left.
    auto back = begin_course(folder, courses, 150);
    BOOST_TEST_REQUIRE(back.size() == 3u);
    BOOST_TEST((back[1] == courses[1]));
    BOOST_TEST(back[2].first_step == 150);
    BOOST_TEST(!counts(back, courses[2].name, 210));
    BOOST_TEST(!counts(back, courses[1].name, 160));
    BOOST_TEST(counts(back, courses[1].name, 150));
    BOOST_TEST(begin_course(folder, back, 0).size() == 1u);
    for (const char* text : {"nonsense\n", "0123456789abcdef\n", "0123456789abcdef -1\n", "0123456789abcdef 1 2\n",
                             "0123456789abcdeX 1\n"}) {
        write_bytes(courses_path(folder), text);
        BOOST_CHECK_EXCEPTION(read_courses(folder), Error,
                              [](const Error& error) { return error.code() == ExitCode::damaged; });
    }
}

// A part alone: what it says it is, and that its blocks are checked.
BOOST_AUTO_TEST_CASE(a_part_is_verified_by_its_name) {
    const std::string folder = empty_test_folder("part");
    const Tensors written(odd_sizes());
    LocalWriter writer({folder, {0}, true}, {{"0123456789abcdef", 0}}, {}, cluster::make_solo_group());
    BOOST_TEST(writer.begin(some_contents(5), written.entries));
    BOOST_TEST(writer.commit());
    const std::string path = folder + "/" + part_file_name({5, 0, 1, false});
    BOOST_TEST(verify(path) == writer.cost().bytes);
    const auto tensors = list_tensors(path);
    BOOST_TEST(tensors.size() == written.entries.size());
    BOOST_TEST(same(read_contents(path), some_contents(5)));
    Tensors read(odd_sizes());
    const auto alone = cluster::make_solo_group();
    // It is no checkpoint by itself.
    BOOST_CHECK_EXCEPTION(load(path, read.entries, *alone), Error,
                          [](const Error& error) { return error.code() == ExitCode::usage; });
    fs::copy(path, folder + "/other.h5");
    BOOST_CHECK_EXCEPTION(verify(folder + "/other.h5"), Error,
                          [](const Error& error) { return error.code() == ExitCode::usage; });
    flip_bit(path, fs::file_size(path) / 2, 3);
    BOOST_CHECK_EXCEPTION(verify(path), Error, [](const Error& error) { return error.code() == ExitCode::damaged; });
}
