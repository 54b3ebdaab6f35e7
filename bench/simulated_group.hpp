// One rank of a group of any size, alone: the others are taken to say what it says, unless they are told to say
// something else. What it costs this rank to be in the group is real (memory, time, bytes received); nothing travels.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/host_group.hpp"

namespace lockstep::bench {

class SimulatedGroup : public cluster::HostGroup {
  public:
    // answers: what all ranks together say in the first calls of all_gather_bytes.
    SimulatedGroup(int rank, int size, std::vector<std::string> answers = {})
        : rank_(rank), size_(size), answers_(std::move(answers)) {}
    // What another rank's block in a gather differs in from this one's: changes it in place, not its size.
    void vary(std::function<void(int rank, std::string& block)> change) { vary_ = std::move(change); }
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    void all_reduce(std::vector<double>& values, cluster::Reduce operation) override {
        if (operation == cluster::Reduce::sum)
            for (double& value : values) value *= size_;
        count(values.size() * sizeof(double));
    }
    void all_reduce(std::vector<std::int64_t>& values, cluster::Reduce operation) override {
        if (operation == cluster::Reduce::sum)
            for (std::int64_t& value : values) value *= size_;
        count(values.size() * sizeof(std::int64_t));
    }
    void broadcast(void*, std::size_t bytes, int) override { count(bytes); }
    std::vector<char> gather(const void* data, std::size_t bytes, int root) override {
        return rank_ == root ? all_gather_bytes(data, bytes) : (count(0), std::vector<char>());
    }
    std::vector<char> all_gather_bytes(const void* data, std::size_t bytes) override {
        if (answered_ < answers_.size()) {
            const std::string& answer = answers_[answered_++];
            count(answer.size());
            return {answer.begin(), answer.end()};
        }
        std::vector<char> all(bytes * static_cast<std::size_t>(size_));
        std::string block(static_cast<const char*>(data), bytes);
        for (int rank = 0; rank < size_; ++rank) {
            if (vary_) vary_(rank, block = std::string(static_cast<const char*>(data), bytes));
            std::memcpy(all.data() + bytes * static_cast<std::size_t>(rank), block.data(), bytes);
        }
        count(all.size());
        return all;
    }
    void exchange(const std::vector<cluster::HostMessage>& receives,
                  const std::vector<cluster::HostMessage>&) override {
        std::size_t bytes = 0;
        for (const cluster::HostMessage& message : receives) bytes += message.bytes;
        count(bytes);
    }
    void barrier() override { count(0); }

    std::int64_t calls() const { return calls_; }
    std::uint64_t bytes_received() const { return bytes_; }

  private:
    void count(std::size_t bytes) {
        ++calls_;
        bytes_ += bytes;
    }
    int rank_, size_;
    std::vector<std::string> answers_;
    std::function<void(int, std::string&)> vary_;
    std::size_t answered_ = 0;
    std::int64_t calls_ = 0;
    std::uint64_t bytes_ = 0;
};

}  // namespace lockstep::bench
