#include "cluster/agree.hpp"

#include <exception>
#include <new>
#include <string>

namespace lockstep::cluster {

std::optional<Error> caught(const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& error) {
        return error;
    } catch (const std::bad_alloc&) {
        return fault_error("out of memory");
    } catch (const std::exception& problem) {
        return fault_error("internal error: {}", problem.what());
    }
    return std::nullopt;
}

std::optional<Failure> agree(const std::optional<Error>& own, HostGroup& group) {
    std::vector<std::int64_t> first = {own ? group.rank() : group.size()};
    group.all_reduce(first, Reduce::minimum);
    const int rank = static_cast<int>(first[0]);
    if (rank == group.size()) return std::nullopt;
    int code = own ? static_cast<int>(own->code()) : 0;
    group.broadcast(&code, sizeof code, rank);
    const std::string sentence = group.broadcast_text(own ? own->what() : "", rank);
    return Failure{Error(static_cast<ExitCode>(code), sentence), rank};
}

void on_root(HostGroup& group, const std::function<void()>& work) {
    const auto failure = agree(group.rank() == 0 ? caught(work) : std::nullopt, group);
    if (failure) throw failure->error;
}

void together(HostGroup& group, const std::function<void()>& work) {
    const auto failure = agree(caught(work), group);
    if (failure) throw failure->error;
}

}  // namespace lockstep::cluster
