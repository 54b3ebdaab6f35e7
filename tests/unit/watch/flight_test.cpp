// Lists of ranks as text, and the flight recorder as another process reads it.
#define BOOST_TEST_MODULE flight
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cluster/flight_recorder.hpp"
#include "cluster/rank_list.hpp"
#include "watch/flight_reader.hpp"

using namespace lockstep::cluster;
using namespace lockstep::watch;

namespace {

namespace fs = std::filesystem;

class Folder {
  public:
    Folder() {
        std::string name = (fs::temp_directory_path() / "lockstep-flight-XXXXXX").string();
        BOOST_REQUIRE(::mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    ~Folder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    std::string file(const std::string& name) const { return (path_ / name).string(); }

  private:
    fs::path path_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(rank_lists_read_back) {
    const std::vector<std::pair<std::vector<int>, std::string>> cases = {{{}, ""},
                                                                         {{0}, "0"},
                                                                         {{3, 4}, "3-4"},
                                                                         {{0, 1, 2, 3, 8, 10, 12, 14}, "0-3,8-14:2"},
                                                                         {{1, 7}, "1,7"},
                                                                         {{0, 4, 8, 9}, "0-8:4,9"},
                                                                         {{0, 1, 16, 17, 32, 33}, "0-1,16-17,32-33"}};
    for (const auto& [ranks, text] : cases) {
        BOOST_TEST(rank_list_text(ranks) == text);
        BOOST_TEST(rank_list_from(text) == ranks, boost::test_tools::per_element());
    }
    for (const char* wrong : {"a", "1-", "3-1", "1,,2", "1-4:0", "-1", "1 2", "1;2"})
        BOOST_TEST(rank_list_from(wrong).empty(), wrong);
    // Trailing commas end the list.
    BOOST_TEST(rank_list_from("1,").size() == 1u);
}

BOOST_AUTO_TEST_CASE(long_rank_lists_are_cut_in_sentences) {
    BOOST_TEST(short_rank_list_text({0, 1, 2, 5}) == "0-2,5");
    std::vector<int> squares;
    for (int i = 0; i < 1200; ++i) squares.push_back(i * i);
    const std::string text = short_rank_list_text(squares);
    BOOST_TEST(text.starts_with("0-1,4,9,16,"));
    BOOST_TEST(text.ends_with(",... (1,200 in all)"));
    BOOST_TEST(text.size() < 110u);
}

BOOST_AUTO_TEST_CASE(what_was_recorded_is_read) {
    const Folder folder;
    FlightRecorder recorder;
    recorder.set_rank(3, 8, "node-7");
    const int replicas = recorder.add_group("replicas", {1, 3, 5, 7}), chain = recorder.add_group("chain", {2, 3});
    recorder.name_region(0, "epoch");
    recorder.name_region(1, "epoch/step");
    recorder.done(recorder.begin(replicas, FlightKind::all_reduce, 1000));
    // What came before it was shared is there too.
    BOOST_TEST_REQUIRE(recorder.share(folder.file("rank-00003.flight")));
    recorder.set_region(1);
    recorder.set_step(42);
    const auto message = recorder.begin(chain, FlightKind::receive, 64, 2);
    BOOST_TEST(recorder.wait_for(message) == 0u);

    const auto state = read_flight(folder.file("rank-00003.flight"), 100);
    BOOST_TEST_REQUIRE(state.has_value());
    BOOST_TEST(state->rank == 3);
    BOOST_TEST(state->ranks == 8);
    BOOST_TEST(state->host == "node-7");
    BOOST_TEST(state->process == ::getpid());
    BOOST_TEST(state->step == 42);
    BOOST_TEST(state->region == "epoch/step");
    BOOST_TEST((state->stage == FlightStage::running));
    BOOST_TEST_REQUIRE(state->groups.size() == 2u);
    BOOST_TEST(state->groups[0].name == "replicas");
    BOOST_TEST(state->groups[0].members == "1-7:2");
    BOOST_TEST(state->groups[0].collectives == 1u);
    BOOST_TEST(state->groups[1].messages == 1u);
    BOOST_TEST_REQUIRE(state->operations.size() == 2u);
    BOOST_TEST(state->operations[0].done);
    BOOST_TEST(state->operations[0].bytes == 1000u);
    BOOST_TEST_REQUIRE(state->waiting.has_value());
    BOOST_TEST((state->waiting->kind == FlightKind::receive));
    BOOST_TEST(state->waiting->peer == 2);
    BOOST_TEST(state->waiting->group == "chain");
    BOOST_TEST(!state->waiting->done);

    recorder.done(message);
    BOOST_TEST(recorder.wait_for(0) == message);
    recorder.set_stage(FlightStage::leaving);
    const auto later = read_flight(folder.file("rank-00003.flight"), 1);
    BOOST_TEST_REQUIRE(later.has_value());
    BOOST_TEST(!later->waiting.has_value());
    BOOST_TEST_REQUIRE(later->operations.size() == 1u);
    BOOST_TEST(later->operations[0].done);
    BOOST_TEST((later->stage == FlightStage::leaving));
}

BOOST_AUTO_TEST_CASE(old_operations_make_room_and_a_late_end_spoils_nothing) {
    const Folder folder;
    FlightRecorder recorder;
    const int group = recorder.add_group("all", {0, 1});
    const auto first = recorder.begin(group, FlightKind::barrier, 0);
    for (int i = 0; i < 1000; ++i) recorder.done(recorder.begin(group, FlightKind::all_reduce, 8));
    const auto open = recorder.begin(group, FlightKind::all_reduce, 8);
    recorder.done(first);  // its place is another's by now
    BOOST_TEST_REQUIRE(recorder.share(folder.file("page")));
    const auto state = read_flight(folder.file("page"), 1u << 20);
    BOOST_TEST_REQUIRE(state.has_value());
    BOOST_TEST(state->operations.size() >= 100u);
    BOOST_TEST(state->operations.back().number == 1002u);
    BOOST_TEST(!state->operations.back().done);
    BOOST_TEST(state->operations.front().number == 1002u - state->operations.size() + 1);
    recorder.done(open);
}

BOOST_AUTO_TEST_CASE(what_the_gpu_has_reached_is_done) {
    const Folder folder;
    FlightRecorder recorder;
    const int group = recorder.add_group("all", {0, 1});
    static_cast<void>(recorder.begin(group, FlightKind::all_reduce, 8, -1, true));
    const auto reached = recorder.begin(group, FlightKind::all_reduce, 8, -1, true);
    static_cast<void>(recorder.begin(group, FlightKind::all_reduce, 8));  // of the host: not the GPU's to end
    static_cast<void>(recorder.begin(group, FlightKind::all_reduce, 8, -1, true));
    recorder.device_reached(reached + 1);
    BOOST_TEST_REQUIRE(recorder.share(folder.file("page")));
    const auto state = read_flight(folder.file("page"), 10);
    BOOST_TEST_REQUIRE(state->operations.size() == 4u);
    BOOST_TEST(state->operations[0].done);
    BOOST_TEST(state->operations[1].done);
    BOOST_TEST(!state->operations[2].done);
    BOOST_TEST(!state->operations[3].done);
}

BOOST_AUTO_TEST_CASE(more_groups_than_there_is_room_for_and_long_lists) {
    FlightRecorder recorder;
    const Folder folder;
    std::vector<int> scattered;
    for (int i = 0, rank = 0; i < 500; ++i) scattered.push_back(rank += 1 + i % 3);
    static_cast<void>(recorder.add_group("scattered", scattered));
    int last = 0;
    for (int i = 0; i < 100; ++i) last = recorder.add_group("group", {0, 1});
    static_cast<void>(recorder.begin(last, FlightKind::barrier, 0));
    BOOST_TEST_REQUIRE(recorder.share(folder.file("page")));
    const auto state = read_flight(folder.file("page"), 10);
    BOOST_TEST_REQUIRE(state.has_value());
    BOOST_TEST(state->groups.size() == 32u);
    BOOST_TEST(state->groups[0].members.empty());  // too many to note
    BOOST_TEST(state->operations.back().group == "group");
}

BOOST_AUTO_TEST_CASE(what_is_no_recorder_is_not_read) {
    const Folder folder;
    BOOST_TEST(!read_flight(folder.file("nothing"), 1).has_value());
    std::ofstream(folder.file("short")) << "short";
    BOOST_TEST(!read_flight(folder.file("short"), 1).has_value());
    {
        FlightRecorder recorder;
        BOOST_TEST_REQUIRE(recorder.share(folder.file("page")));
    }
    const auto bytes = fs::file_size(folder.file("page"));
    std::ofstream(folder.file("zeros")) << std::string(bytes, '\0');
    BOOST_TEST(!read_flight(folder.file("zeros"), 1).has_value());
    BOOST_TEST(read_flight(folder.file("page"), 1).has_value());
}

// Whoever shares a recorder lives as long as it is locked, whatever its process's number is in this container.
BOOST_AUTO_TEST_CASE(who_lives) {
    const Folder folder;
    BOOST_TEST(!flight_alive(folder.file("nobody")));
    int ready[2] = {-1, -1};
    BOOST_TEST_REQUIRE(::pipe(ready) == 0);
    const pid_t child = ::fork();
    BOOST_TEST_REQUIRE(child >= 0);
    if (child == 0) {
        FlightRecorder recorder;
        const char shared = recorder.share(folder.file("page")) ? 'y' : 'n';
        static_cast<void>(::write(ready[1], &shared, 1) == 1);
        for (;;) ::pause();
    }
    char shared = 0;
    BOOST_TEST(::read(ready[0], &shared, 1) == 1);
    BOOST_TEST(shared == 'y');
    BOOST_TEST(flight_alive(folder.file("page")));
    BOOST_TEST(flight_alive(folder.file("page")));  // asking changes nothing
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    BOOST_TEST(!flight_alive(folder.file("page")));
    const auto state = read_flight(folder.file("page"), 1);
    BOOST_TEST_REQUIRE(state.has_value());
    BOOST_TEST(state->process == child);
    ::close(ready[0]);
    ::close(ready[1]);
}
