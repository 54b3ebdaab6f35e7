// Training with a mixer or optimizer of the tests' own, in a lockstep made of the product's commands as they are.
#pragma once

#include <string>
#include <vector>

#include "end_to_end/command.hpp"

namespace lockstep::tests {

constexpr double loss_tolerance = 2e-6;
constexpr int last_step = 12;

struct Layout {
    int ranks;
    std::string settings;
};

// run.toml with the settings that choose the extension, and more.
class Extended {
  public:
    explicit Extended(std::string settings) : settings_(std::move(settings)) {}

    Result train(const fs::path& folder, int ranks, const std::string& more) const {
        return run("train run.toml " + settings_ + " --device cpu " + more, folder, ranks,
                   "LOCKSTEP_SYNCHRONOUS_SENDS=1 OMP_NUM_THREADS=1");
    }

    void check_losses_of_one_rank(const std::vector<Layout>& layouts) const {
        const Workplace place;
        check_exit(train(place.path(), 1, "--set run.name=one"), 0);
        const auto expected = numbers_of(place.path(), "loss", "one");
        BOOST_TEST(expected.at(last_step) < 0.98 * expected.at(1));
        for (const Layout& layout : layouts) BOOST_TEST_CONTEXT(layout.settings) {
                const std::string name = "layout-" + std::to_string(&layout - layouts.data());
                check_exit(train(place.path(), layout.ranks, "--set run.name=" + name + " " + layout.settings), 0);
                const bool rounded = contains(layout.settings, "bf16");
                BOOST_TEST(largest_difference(expected, numbers_of(place.path(), "loss", name)) <
                           (rounded ? 5e-3 : loss_tolerance));
            }
    }

    // Stopped and resumed on the same layout.
    void check_resumes_bit_for_bit(const Workplace& place, const Layout& layout) const {
        const std::string name = std::to_string(layout.settings.size());
        const fs::path whole = place.twin("whole-" + name), stopped = place.twin("stopped-" + name);
        check_exit(train(whole, layout.ranks, layout.settings), 0);
        check_exit(train(stopped, layout.ranks, layout.settings + " --stop-at 5"), 4);
        const Result second = train(stopped, layout.ranks, layout.settings + " --resume auto");
        check_exit(second, 0);
        BOOST_TEST(!contains(second.error, "bit for bit"), second);
        check_same_checkpoint(checkpoint_file(whole, last_step), checkpoint_file(stopped, last_step));
        BOOST_TEST((numbers_of(whole, "loss") == numbers_of(stopped, "loss")));
    }

  private:
    std::string settings_;
};

}  // namespace lockstep::tests
