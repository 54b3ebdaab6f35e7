#include "checkpoint/agreement.hpp"

#include <exception>
#include <new>

namespace lockstep::checkpoint {

std::optional<Error> caught(const std::function<void()>& body) {
    try {
        body();
    } catch (const Error& error) {
        return error;
    } catch (const std::bad_alloc&) {
        return fault_error("there is not enough memory for the copy that a checkpoint is written from or read into");
    } catch (const std::exception& problem) {
        return fault_error("{}", problem.what());
    }
    return std::nullopt;
}

std::optional<Failure> agree(const std::optional<Error>& own, cluster::Communicator& communicator) {
    std::vector<std::int64_t> first = {own ? communicator.rank() : communicator.size()};
    communicator.all_reduce(first, cluster::Reduce::minimum);
    const int rank = static_cast<int>(first[0]);
    if (rank == communicator.size()) return std::nullopt;
    int code = own ? static_cast<int>(own->code()) : 0;
    communicator.broadcast(&code, sizeof code, rank);
    const std::string sentence = communicator.broadcast_text(own ? own->what() : "", rank);
    return Failure{Error(static_cast<ExitCode>(code), sentence), rank};
}

}  // namespace lockstep::checkpoint
