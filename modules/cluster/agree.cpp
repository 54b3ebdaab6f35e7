#include "cluster/agree.hpp"

#include <exception>
#include <optional>
#include <string>

#include "base/error.hpp"

namespace lockstep::cluster {
namespace {

void agree(Communicator& communicator, bool takes_part, const std::function<void()>& work) {
    int code = 0;
    std::string sentence;
    if (takes_part) {
        try {
            work();
        } catch (const Error& error) {
            code = static_cast<int>(error.code());
            sentence = error.what();
        } catch (const std::exception& error) {
            code = static_cast<int>(ExitCode::fault);
            sentence = std::string("a fault inside lockstep: ") + error.what();
        }
    }
    std::vector<std::int64_t> lowest = {code == 0 ? communicator.size() : communicator.rank()};
    communicator.all_reduce(lowest, Reduce::minimum);
    if (lowest[0] == communicator.size()) return;
    const int speaker = static_cast<int>(lowest[0]);
    communicator.broadcast(&code, sizeof code, speaker);
    throw Error(static_cast<ExitCode>(code), communicator.broadcast_text(sentence, speaker));
}

}  // namespace

void on_root(Communicator& communicator, const std::function<void()>& work) {
    agree(communicator, communicator.rank() == 0, work);
}
void together(Communicator& communicator, const std::function<void()>& work) {
    agree(communicator, true, work);
}

}  // namespace lockstep::cluster
