// How the ranks of a communicator find each other: each sends what it is to one of them, which sends the whole list to
// all. It blocks nobody and gives up after the time limit.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace lockstep::emulation::nccl {

struct Member {
    std::int32_t size = 0;   // of the communicator, as this rank sees it
    std::int32_t rank = 0;   // in it
    std::int32_t world = 0;  // in MPI_COMM_WORLD
    std::int32_t device = 0;
    std::int32_t color = 0, key = 0;  // of a split
    std::array<char, 128> host{};
};

struct ExchangeKey {
    std::uint64_t communicator = 0;
    std::uint64_t split = 0;  // 0: the communicator is made; k: its k-th split
    friend auto operator<=>(const ExchangeKey&, const ExchangeKey&) = default;
};

class Exchange {
  public:
    // `root` is the world rank of the one who collects; it must be one of the members.
    Exchange(ExchangeKey key, int root, const Member& own);
    // Whether all have come. Throws where they do not agree, or at the time limit.
    bool progress();
    const std::vector<Member>& members() const { return members_; }  // in the order of their ranks

  private:
    ExchangeKey key_;
    int root_;
    Member own_;
    double start_;
    std::vector<Member> members_;
};

Member this_process();  // its host, device and world rank

}  // namespace lockstep::emulation::nccl
