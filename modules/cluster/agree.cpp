#include "cluster/agree.hpp"

#include <array>
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
    // A lost connection may follow from another rank's failure: it comes after all else.
    const int nobody = 2 * group.size();
    std::vector<std::int64_t> first = {nobody};
    if (own) first = {own->is_connection_error() ? group.size() + group.rank() : group.rank()};
    group.all_reduce(first, Reduce::minimum);
    if (first[0] == nobody) return std::nullopt;
    const int rank = static_cast<int>(first[0]) % group.size();
    std::array<int, 2> code = {};
    if (own) code = {static_cast<int>(own->code()), static_cast<int>(own->kind())};
    group.broadcast(code.data(), sizeof code, rank);
    const std::string sentence = group.broadcast_text(own ? own->what() : "", rank);
    return Failure{Error(static_cast<ExitCode>(code[0]), sentence, static_cast<Error::Kind>(code[1])), rank};
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
