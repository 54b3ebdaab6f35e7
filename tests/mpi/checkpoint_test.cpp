#define BOOST_TEST_MODULE checkpoint_mpi
#define BOOST_TEST_NO_MAIN
#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "base/fault.hpp"
#include "base/log.hpp"
#include "mpi/checkpoint_world.hpp"

using namespace lockstep;
using namespace lockstep::checkpoint_tests;
namespace fs = std::filesystem;

namespace {

struct InjectedFault {
    explicit InjectedFault(const std::string& fault) { setenv("LOCKSTEP_FAULT", fault.c_str(), 1); }
    ~InjectedFault() { unsetenv("LOCKSTEP_FAULT"); }
};

}  // namespace

BOOST_AUTO_TEST_CASE(what_is_written_is_read_on_every_rank) {
    const std::string folder = shared_folder("round_trip");
    const Tensors written(odd_sizes());
    checkpoint::Writer writer(folder, 2, world());
    BOOST_TEST(writer.write_now(some_contents(100), written.entries));
    Tensors read(odd_sizes());
    read.fill(-1);
    const auto group = world();
    checkpoint::load(in(folder, 100), read.entries, *group);
    BOOST_TEST((read == written));
    if (group->rank() == 0) BOOST_TEST(same(checkpoint::read_contents(in(folder, 100)), some_contents(100)));
}

// So a run on any number of ranks can resume from what any other number wrote.
BOOST_AUTO_TEST_CASE(the_file_does_not_depend_on_the_number_of_ranks) {
    for (const auto& tensors : {odd_sizes(), few_small()}) {
        const std::string folder = shared_folder("any_ranks");
        const Tensors written(tensors);
        checkpoint::Writer writer(folder + "/all", 2, world());
        BOOST_TEST(writer.write_now(some_contents(1), written.entries));
        const auto group = world();
        if (group->rank() == 0) {
            solo_writer(folder + "/one").write_now(some_contents(1), written.entries);
            BOOST_TEST((bytes_of(in(folder + "/all", 1)) == bytes_of(in(folder + "/one", 1))));
        }
        group->barrier();
        Tensors read(tensors);
        read.fill(-1);
        checkpoint::load(in(folder + "/one", 1), read.entries, *group);
        BOOST_TEST((read == written));
        read.fill(-1);
        const auto alone = cluster::make_solo_group();
        checkpoint::load(in(folder + "/all", 1), read.entries, *alone);
        BOOST_TEST((read == written));
        group->barrier();
    }
}

BOOST_AUTO_TEST_CASE(the_file_holds_what_was_there_at_begin) {
    const std::string folder = shared_folder("beside");
    Tensors changing(odd_sizes());
    checkpoint::Writer writer(folder, 2, world());
    const auto group = world();
    for (const int step : {1, 2, 3}) {
        const Tensors start(odd_sizes(), static_cast<float>(step));
        for (std::size_t i = 0; i < start.entries.size(); ++i)
            std::memcpy(changing.entries[i].value.data(), start.entries[i].value.data(),
                        start.entries[i].value.bytes());
        BOOST_TEST(writer.begin(some_contents(step), changing.entries));
        changing.fill(static_cast<float>(group->rank()));
        if (step == 2) continue;  // the next begin commits it
        BOOST_TEST(writer.commit());
        group->barrier();
        checkpoint::load(in(folder, step), changing.entries, *group);
        BOOST_TEST((changing == start));
    }
    group->barrier();
    BOOST_TEST(!fs::exists(in(folder, 1)));
    BOOST_TEST(fs::exists(in(folder, 2)));
    BOOST_TEST(fs::exists(in(folder, 3)));
}

BOOST_AUTO_TEST_CASE(when_one_rank_cannot_write_all_give_up_together) {
    const std::string folder = shared_folder("one_fails");
    const Tensors written(odd_sizes());
    checkpoint::Writer writer(folder, 2, world());
    const auto group = world();
    BOOST_TEST(writer.write_now(some_contents(1), written.entries));
    for (int rank = 0; rank < group->size(); ++rank) {
        const InjectedFault fault(fmt::format("checkpoint_write:{}:*:enospc", rank));
        BOOST_TEST(writer.begin(some_contents(2), written.entries));
        BOOST_TEST(!writer.commit());
        BOOST_TEST(!fs::exists(in(folder, 2)));
    }
    {
        const InjectedFault fault("checkpoint_reserve:0:*:enospc");
        BOOST_TEST(!writer.begin(some_contents(2), written.entries));
    }
    group->barrier();
    BOOST_TEST(checkpoint::list_checkpoints(folder) == std::vector<std::string>{in(folder, 1)});
    BOOST_TEST(!fs::exists(in(folder, 2) + ".tmp"));
    BOOST_TEST(writer.write_now(some_contents(2), written.entries));
    group->barrier();
    checkpoint::verify(in(folder, 2));
}

BOOST_AUTO_TEST_CASE(damage_is_reported_alike_on_every_rank) {
    const std::string folder = shared_folder("damage");
    const Tensors written(odd_sizes());
    checkpoint::Writer writer(folder, 2, world());
    BOOST_TEST(writer.write_now(some_contents(1), written.entries));
    const auto group = world();
    // The last element of the largest tensor: another rank than 0 reads it when there is one.
    if (group->rank() == 0) {
        const auto& head = *std::find_if(written.entries.begin(), written.entries.end(),
                                         [](const Entry& entry) { return entry.path == "parameters/head/weight"; });
        const char* end = static_cast<const char*>(head.value.data()) + head.value.bytes();
        flip_bit(in(folder, 1), place_of(in(folder, 1), std::string(end - 400, end)) + 399, 0);
    }
    group->barrier();
    Tensors read(odd_sizes());
    BOOST_CHECK_EXCEPTION(checkpoint::load(in(folder, 1), read.entries, *group), Error, [](const Error& error) {
        return error.code() == ExitCode::damaged &&
               std::string(error.what()).find("parameters/head/weight") != std::string::npos;
    });
    BOOST_CHECK_EXCEPTION(checkpoint::load(folder + "/none.h5", read.entries, *group), Error,
                          [](const Error& error) { return error.code() == ExitCode::usage; });
}

BOOST_AUTO_TEST_CASE(a_tensor_with_two_shapes_is_refused) {
    const std::string folder = shared_folder("two_shapes");
    checkpoint::Writer writer(folder, 2, world());
    const bool is_last = session->size() > 1 && session->rank() == session->size() - 1;
    const Tensors written({{"parameters/a/weight", is_last ? Shape{3, 5} : Shape{5, 3}}, {"parameters/b", {1}}});
    if (session->size() == 1)
        BOOST_TEST(writer.begin(some_contents(1), written.entries));
    else
        BOOST_CHECK_EXCEPTION(writer.begin(some_contents(1), written.entries), Error, [](const Error& error) {
            return error.code() == ExitCode::fault &&
                   std::string(error.what()).find("parameters/a/weight") != std::string::npos;
        });
}

int main(int argc, char** argv) {
    cluster::Session started(&argc, &argv);
    session = &started;
    log::set_rank(started.rank());
    fault::set_position(started.rank(), 0);
    return started.run([&] { return boost::unit_test::unit_test_main(init_unit_test, argc, argv); });
}
