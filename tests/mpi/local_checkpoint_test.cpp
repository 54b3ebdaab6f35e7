// Local checkpoints on several ranks, whose nodes are folders.
#define BOOST_TEST_MODULE local_checkpoint_mpi
#define BOOST_TEST_NO_MAIN
#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "base/fault.hpp"
#include "base/log.hpp"
#include "checkpoint/local.hpp"
#include "mpi/checkpoint_world.hpp"

using namespace lockstep;
using namespace lockstep::checkpoint_tests;
using checkpoint::Course;
using checkpoint::LocalPlace;
using checkpoint::LocalWriter;
namespace fs = std::filesystem;

namespace {

const std::vector<Course> one_course = {{"0123456789abcdef", 0}};

// `count` nodes, as even as may be, each with a folder of its own.
LocalPlace place_on(const std::string& folder, int count) {
    LocalPlace place;
    for (int rank = 0; rank < session->size(); ++rank) place.nodes.push_back(rank * count / session->size());
    place.folder = fmt::format("{}/node{}", folder, place.nodes[static_cast<std::size_t>(session->rank())]);
    return place;
}

bool write_local(LocalWriter& writer, int step, const Tensors& tensors) {
    return writer.begin(some_contents(step), tensors.entries) && writer.commit();
}

// Of `step`, filled from what is left; the number of copies that it took, or -1 where there is none.
int read_back(const LocalPlace& place, int step, const Tensors& expected, cluster::HostGroup& group) {
    for (const auto& set : checkpoint::find_local(place, one_course, group)) {
        if (set.step != step) continue;
        const auto opened = checkpoint::open_local(place, set, group);
        if (!opened) return -1;
        checkpoint::Contents contents = some_contents(step);
        BOOST_TEST(opened->state.step == step);
        BOOST_TEST(opened->state.loss_scale == contents.state.loss_scale);
        BOOST_TEST(opened->run_description == contents.run_description);
        Tensors read(odd_sizes());
        read.fill(-1);
        checkpoint::load_local(place, *opened, read.entries, group);
        BOOST_TEST((read == expected));
        BOOST_TEST(opened->own() + opened->copies() == set.parts);
        return opened->copies();
    }
    return -1;
}

std::size_t files_of(const std::string& folder, const std::string& part) {
    std::size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        if (entry.path().filename().string().find(part) != std::string::npos) ++count;
    return count;
}

struct InjectedFault {
    explicit InjectedFault(const std::string& fault) { setenv("LOCKSTEP_FAULT", fault.c_str(), 1); }
    ~InjectedFault() { unsetenv("LOCKSTEP_FAULT"); }
};

// Some byte of some block, by what is written there.
void damage(const std::string& path, const Tensors& written, const char* tensor) {
    const auto& entry = *std::find_if(written.entries.begin(), written.entries.end(),
                                      [&](const Entry& one) { return one.path == tensor; });
    const char* begin = static_cast<const char*>(entry.value.data());
    const std::string bytes = bytes_of(path);
    for (std::size_t at = 0; at + 400 <= entry.value.bytes(); at += std::size_t{1} << 20)
        if (const auto found = bytes.find(std::string(begin + at, begin + at + 400)); found != std::string::npos)
            return flip_bit(path, found + 200, 2);
    // This part has none of that tensor: its last byte of data.
    const auto last = bytes.find_last_not_of('\0');
    flip_bit(path, last, 2);
}

}  // namespace

BOOST_AUTO_TEST_CASE(losing_any_one_node_loses_nothing) {
    const int size = session->size();
    for (const int count : {1, 2, size}) {
        if (count > size) continue;
        const std::string folder = shared_folder("local_lost_node");
        const LocalPlace place = place_on(folder, count);
        const Tensors written(odd_sizes());
        const auto group = world();
        checkpoint::Writer shared(folder + "/shared", 2, world());
        BOOST_TEST(shared.write_now(some_contents(10), written.entries));
        LocalWriter writer(place, one_course, {}, world());
        BOOST_TEST(write_local(writer, 10, written));
        BOOST_TEST(read_back(place, 10, written, *group) == 0);
        // What the shared one of the same step holds.
        Tensors from_shared(odd_sizes());
        from_shared.fill(-2);
        checkpoint::load(in(folder + "/shared", 10), from_shared.entries, *group);
        BOOST_TEST((from_shared == written));
        for (int node = 0; node < count; ++node) {
            const std::string lost = fmt::format("{}/node{}", folder, node);
            group->barrier();
            if (group->rank() == 0) fs::rename(lost, lost + ".lost");
            group->barrier();
            const auto parts = std::count(place.nodes.begin(), place.nodes.end(), node);
            BOOST_TEST(read_back(place, 10, written, *group) == (count == 1 ? -1 : static_cast<int>(parts)));
            group->barrier();
            if (group->rank() == 0) fs::rename(lost + ".lost", lost);
            group->barrier();
        }
        // Two nodes in a row: the part of the first of them and its copy are gone.
        if (count < 2) continue;
        if (group->rank() == 0)
            for (const int node : {0, 1}) fs::remove_all(fmt::format("{}/node{}", folder, node));
        group->barrier();
        BOOST_TEST(read_back(place, 10, written, *group) == -1);
    }
}

BOOST_AUTO_TEST_CASE(any_number_of_ranks_reads_it) {
    if (session->size() < 2) return;
    const std::string folder = shared_folder("local_other_ranks");
    const LocalPlace place = place_on(folder, 2);
    const Tensors written(odd_sizes());
    const auto group = world();
    {
        LocalWriter writer(place, one_course, {}, world());
        BOOST_TEST(write_local(writer, 10, written));
    }
    // One rank alone, with what one of the two nodes has: parts of its own, and copies.
    group->barrier();
    if (group->rank() == 0) {
        const auto alone = cluster::make_solo_group();
        for (const int node : {0, 1})
            BOOST_TEST(read_back({fmt::format("{}/node{}", folder, node), {0}, true}, 10, written, *alone) ==
                       std::count(place.nodes.begin(), place.nodes.end(), 1 - node));
        LocalWriter writer({folder + "/node0", {0}, true}, one_course, {}, cluster::make_solo_group());
        BOOST_TEST(write_local(writer, 20, written));
    }
    group->barrier();
    // More ranks than wrote it.
    BOOST_TEST(read_back(place, 20, written, *group) == 0);
}

BOOST_AUTO_TEST_CASE(a_damaged_part_is_replaced_by_its_copy) {
    if (session->size() < 2) return;
    const std::string folder = shared_folder("local_damage");
    const LocalPlace place = place_on(folder, 2);
    const Tensors older(odd_sizes(), 0.5f), written(odd_sizes());
    const auto group = world();
    LocalWriter writer(place, one_course, {}, world());
    BOOST_TEST(write_local(writer, 10, older));
    BOOST_TEST(write_local(writer, 20, written));
    const int last = group->size() - 1;
    const auto path_of = [&](int node, bool copy) {
        return fmt::format("{}/node{}/{}", folder, node, checkpoint::part_file_name({20, last, group->size(), copy}));
    };
    group->barrier();
    if (group->rank() == 0) damage(path_of(1, false), written, "parameters/head/weight");
    group->barrier();
    BOOST_TEST(read_back(place, 20, written, *group) == 1);
    group->barrier();
    if (group->rank() == 0) damage(path_of(0, true), written, "parameters/head/weight");
    group->barrier();
    BOOST_TEST(read_back(place, 20, written, *group) == -1);
    BOOST_TEST(read_back(place, 10, older, *group) == 0);
}

BOOST_AUTO_TEST_CASE(the_newest_two_are_kept_and_what_does_not_count_goes) {
    const std::string folder = shared_folder("local_kept");
    const LocalPlace place = place_on(folder, std::min(2, session->size()));
    const Tensors written(odd_sizes());
    const auto group = world();
    {
        LocalWriter writer(place, one_course, {}, world());
        for (const int step : {10, 20, 30}) BOOST_TEST(write_local(writer, step, written));
    }
    BOOST_TEST(read_back(place, 10, written, *group) == -1);
    BOOST_TEST(read_back(place, 20, written, *group) == 0);
    BOOST_TEST(read_back(place, 30, written, *group) == 0);
    group->barrier();
    // The run goes on from step 20 in another course.
    const std::vector<Course> courses = {one_course[0], {"fedcba9876543210", 20}};
    {
        LocalWriter writer(place, courses, {20}, world());
        group->barrier();
        BOOST_TEST(files_of(folder, "step-00000030") == 0u);
        BOOST_TEST(read_back(place, 20, written, *group) == 0);
        BOOST_TEST(write_local(writer, 40, written));
        group->barrier();
        BOOST_TEST(files_of(folder, "step-00000020") > 0u);
        const auto sets = checkpoint::find_local(place, courses, *group);
        BOOST_TEST_REQUIRE(sets.size() == 2u);
        BOOST_TEST(sets[0].step == 40);
        BOOST_TEST(sets[1].step == 20);
        writer.remove_all();
        group->barrier();
        BOOST_TEST(files_of(folder, "step-") == 0u);
    }
}

BOOST_AUTO_TEST_CASE(when_one_rank_cannot_write_all_give_up_together) {
    const std::string folder = shared_folder("local_one_fails");
    const int size = session->size();
    const LocalPlace place = place_on(folder, std::min(2, size));
    const Tensors written(odd_sizes());
    const auto group = world();
    LocalWriter writer(place, one_course, {}, world());
    BOOST_TEST(write_local(writer, 10, written));
    std::vector<std::string> points = {"local_reserve:{}:*:enospc", "local_send:{}:*:throw", "local_write:{}:*:enospc",
                                       "local_before_rename:{}:*:throw"};
    if (size > 1) {
        points.emplace_back("local_copy_write:{}:*:enospc");
        points.emplace_back("local_copy_before_rename:{}:*:throw");
    }
    const std::vector<int> keepers = checkpoint::partners(place.nodes);
    for (const std::string& point : points)
        for (int rank = 0; rank < size; ++rank) {
            if (point.find("copy") != std::string::npos &&
                std::find(keepers.begin(), keepers.end(), rank) == keepers.end())
                continue;  // it keeps no copy
            const InjectedFault fault(fmt::format(fmt::runtime(point), rank));
            BOOST_TEST(!write_local(writer, 20, written), point);
            group->barrier();
            BOOST_TEST(files_of(folder, "step-00000020") == 0u, point);
            group->barrier();
        }
    BOOST_TEST(read_back(place, 10, written, *group) == 0);
    // What there is a shared one of goes; nothing else does, and nothing once it can be written again.
    writer.make_room(10);
    group->barrier();
    BOOST_TEST(files_of(folder, "step-00000010") > 0u);
    group->barrier();
    writer.make_room(15);
    group->barrier();
    BOOST_TEST(files_of(folder, "step-00000010") == 0u);
    group->barrier();
    BOOST_TEST(write_local(writer, 20, written));
    writer.make_room(30);
    BOOST_TEST(read_back(place, 20, written, *group) == 0);
}

// Training goes on while it is written, and so may a shared one.
BOOST_AUTO_TEST_CASE(it_holds_what_was_there_at_begin) {
    const std::string folder = shared_folder("local_beside");
    const LocalPlace place = place_on(folder, std::min(2, session->size()));
    const Tensors start(odd_sizes());
    Tensors changing(odd_sizes());
    const auto group = world();
    LocalWriter writer(place, one_course, {}, world());
    checkpoint::Writer shared(folder + "/shared", 2, world());
    BOOST_TEST(writer.begin(some_contents(10), changing.entries));
    BOOST_TEST(shared.begin(some_contents(10), changing.entries));
    changing.fill(static_cast<float>(group->rank()));
    BOOST_TEST(writer.commit());
    BOOST_TEST(shared.commit());
    BOOST_TEST(read_back(place, 10, start, *group) == 0);
    BOOST_TEST(writer.begin(some_contents(20), changing.entries));
    BOOST_TEST(files_of(folder, ".tmp") > 0u);
    group->barrier();
    // The next begin commits it.
    BOOST_TEST(writer.begin(some_contents(30), start.entries));
    BOOST_TEST(writer.commit());
    BOOST_TEST(checkpoint::find_local(place, one_course, *group).size() == 2u);
}

int main(int argc, char** argv) {
    cluster::Session started(&argc, &argv);
    session = &started;
    log::set_rank(started.rank());
    fault::set_position(started.rank(), 0);
    return started.run([&] { return boost::unit_test::unit_test_main(init_unit_test, argc, argv); });
}
