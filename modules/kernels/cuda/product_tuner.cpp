// Lists the kinds of matrix products of a model and times cuBLASLt's proposals for them.
#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "device/cuda/check.hpp"
#include "kernels/cuda.hpp"
#include "kernels/cuda/product_lister.hpp"
#include "kernels/cuda/products.hpp"
#include "kernels/cuda/recording.hpp"

namespace lockstep::kernels {
namespace cuda {
namespace {

constexpr int most_proposals = 8;
// A proposal runs twice, checked and timed, and then in some rounds as often as fits into a round's time; its best
// round counts. A round is one launch of a recording, as in a step: the host would take longer to issue a short product
// than the GPU to run it.
constexpr int rounds = 3, most_runs = 50;
constexpr double round_seconds = 1e-3;

class TimingEvent {
  public:
    TimingEvent() { check_cuda(cudaEventCreate(&event_), "creating an event"); }
    TimingEvent(const TimingEvent&) = delete;
    TimingEvent& operator=(const TimingEvent&) = delete;
    ~TimingEvent() { static_cast<void>(cudaEventDestroy(event_)); }
    void record(cudaStream_t stream) { check_cuda(cudaEventRecord(event_, stream), "recording an event"); }
    double seconds_since(const TimingEvent& earlier) const {
        check_cuda(cudaEventSynchronize(event_), "timing matrix products");
        float milliseconds = 0;
        check_cuda(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "timing matrix products");
        return 1e-3 * static_cast<double>(milliseconds);
    }

  private:
    cudaEvent_t event_ = nullptr;
};

std::size_t offset_of(const Tensor& tensor) {  // what decides the tensor's alignment
    return reinterpret_cast<std::uintptr_t>(tensor.strided_data()) % Arena::device_alignment;
}

std::size_t extent_of(const Tensor& tensor) {  // bytes from the first element to behind the last
    if (tensor.dense()) return tensor.bytes();
    const std::int64_t elements = (tensor.rows() - 1) * tensor.stride() + tensor.size(-1);
    return static_cast<std::size_t>(elements) * type_bytes(tensor.type());
}

Tensor moved(const Tensor& tensor, void* to) {
    if (tensor.dense()) return {to, tensor.type(), tensor.shape()};
    return {to, tensor.type(), tensor.shape(), tensor.stride()};
}

// Scratch memory for the tensors of a call; those that are one in the call are one here.
class Places {
  public:
    explicit Places(const ProductCall& call) {
        for (const Tensor& tensor : call.tensors) {
            if (tensor.empty()) continue;
            std::size_t& bytes = bytes_[tensor.strided_data()];
            bytes = std::max(bytes, offset_of(tensor) + extent_of(tensor));
        }
    }
    std::size_t bytes() const {
        std::size_t sum = 0;
        for (const auto& [data, bytes] : bytes_) sum += whole(bytes);
        return sum;
    }
    std::vector<Tensor> tensors(const ProductCall& call, char* memory) const {
        std::map<void*, char*> places;
        for (const auto& [data, bytes] : bytes_) {
            places[data] = memory;
            memory += whole(bytes);
        }
        std::vector<Tensor> tensors;
        for (const Tensor& tensor : call.tensors)
            tensors.push_back(tensor.empty() ? Tensor()
                                             : moved(tensor, places.at(tensor.strided_data()) + offset_of(tensor)));
        return tensors;
    }

  private:
    static std::size_t whole(std::size_t bytes) {
        return (bytes + Arena::device_alignment - 1) / Arena::device_alignment * Arena::device_alignment;
    }
    std::map<void*, std::size_t> bytes_;
};

// Calls with equal texts have the same kinds of products.
std::string text_of(const ProductCall& call) {
    std::string text = call.name;
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const Tensor& tensor = call.tensors[i];
        if (tensor.empty()) {
            text += " -";
            continue;
        }
        std::size_t same = 0;
        while (call.tensors[same].strided_data() != tensor.strided_data()) ++same;
        text += fmt::format(" {}{}/{}+{}={}", type_name(tensor.type()), shape_text(tensor.shape()), tensor.stride(),
                            offset_of(tensor), same);
    }
    return text;
}

}  // namespace

class CudaBackend::Tuner final : public ProductTuner {
  public:
    Tuner(CudaBackend& backend, const std::vector<ProductCall>& calls)
        : backend_(backend), products_(*backend.products_), memory_(nullptr, Free{backend.context_->device().memory}) {
        keep_each_once(calls);
        allocate();
        for (std::size_t i = 0; i < calls_.size(); ++i)
            repeat(i, [&](const Products::Key& key, const ProductOperands&) {
                const std::string kind = key.text();
                if (known_.emplace(kind, Known{key, i}).second) kinds_.push_back(kind);
            });
        backend_.synchronize();
    }

    std::string library() const override {
        const std::size_t version = cublasLtGetVersion();
        const cudaDeviceProp& gpu = backend_.context_->properties();
        return fmt::format("cuBLASLt {}.{}.{} on {}, {} multiprocessors", version / 10000, version / 100 % 100,
                           version % 100, gpu.name, gpu.multiProcessorCount);
    }
    const std::vector<std::string>& kinds() const override { return kinds_; }
    std::int64_t left_out() const override { return left_out_; }

    std::vector<TimedAlgorithm> time(const std::string& kind) override {
        std::vector<TimedAlgorithm> timed;
        repeat(known_.at(kind).call, [&](const Products::Key& key, const ProductOperands& operands) {
            if (timed.empty() && key.text() == kind) timed = time(key, operands);
        });
        backend_.synchronize();
        return timed;
    }
    bool accepts(const std::string& kind, const std::string& algorithm) override {
        const auto parsed = Products::algorithm_of(algorithm);
        return parsed && products_.takes(known_.at(kind).key, *parsed);
    }
    void use(const std::string& kind, const std::string& algorithm) override {
        if (const auto parsed = Products::algorithm_of(algorithm)) products_.use(kind, *parsed);
    }

  private:
    struct Known {
        Products::Key key;
        std::size_t call;
    };
    struct Free {
        MemorySource* source;
        void operator()(void* memory) const { source->release(memory); }
    };

    void keep_each_once(const std::vector<ProductCall>& calls) {
        std::set<std::string> texts;
        for (const ProductCall& call : calls)
            if (texts.insert(text_of(call)).second) calls_.push_back(call);
    }

    // Room for any one call; where the device has not enough, for any but the largest.
    void allocate() {
        std::vector<std::size_t> sizes;
        for (const ProductCall& call : calls_) sizes.push_back(Places(call).bytes());
        std::sort(sizes.begin(), sizes.end());
        while (!sizes.empty()) {
            memory_.reset(memory_.get_deleter().source->allocate(std::max(sizes.back(), Arena::device_alignment)));
            if (memory_) break;
            sizes.pop_back();
        }
        const std::size_t room = sizes.empty() ? 0 : sizes.back();
        left_out_ = std::erase_if(calls_, [&](const ProductCall& call) { return Places(call).bytes() > room; });
    }

    void repeat(std::size_t call, const Products::Watch& watch) {
        const Products::Watching watching(products_, watch);
        const std::vector<Tensor> tensors =
            Places(calls_[call]).tensors(calls_[call], static_cast<char*>(memory_.get()));
        calls_[call].repeat(backend_, tensors);
    }

    double seconds(const std::function<void()>& run) {
        begin_.record(backend_.stream());
        run();
        end_.record(backend_.stream());
        return end_.seconds_since(begin_);
    }

    std::vector<TimedAlgorithm> time(const Products::Key& key, const ProductOperands& operands) {
        struct Candidate {
            bool first;
            cublasLtMatmulAlgo_t algorithm;
            std::unique_ptr<CudaRecording> recording;
            double seconds = std::numeric_limits<double>::infinity();
        };
        std::vector<Candidate> candidates;
        double least = round_seconds;
        bool first = true;
        for (const cublasLtMatmulAlgo_t& algorithm : products_.proposals(key, most_proposals)) {
            const bool is_first = std::exchange(first, false);
            if (!products_.issue(key, operands, algorithm)) continue;
            least = std::min(least, seconds([&] { products_.issue(key, operands, algorithm); }));
            candidates.push_back({is_first, algorithm, nullptr});
        }
        // As often for all: what a launch costs then weighs the same.
        const int runs =
            static_cast<int>(std::clamp(round_seconds / std::max(least, 1e-9), 1.0, static_cast<double>(most_runs)));
        for (Candidate& candidate : candidates) candidate.recording = record(key, operands, candidate.algorithm, runs);
        std::erase_if(candidates, [](const Candidate& candidate) { return !candidate.recording; });
        // In turns, so that what slows the GPU down for a while slows all of them; each behind a launch that keeps the
        // GPU busy until the timed one is there.
        for (int round = 0; round < rounds; ++round)
            for (Candidate& candidate : candidates) {
                candidate.recording->run();
                candidate.seconds = std::min(candidate.seconds, seconds([&] { candidate.recording->run(); }));
            }
        std::vector<TimedAlgorithm> timed;
        for (const Candidate& candidate : candidates)
            timed.push_back({Products::text_of(candidate.algorithm), candidate.seconds / runs, candidate.first});
        return timed;
    }

    // Null where cuBLASLt cannot be recorded with it.
    std::unique_ptr<CudaRecording> record(const Products::Key& key, const ProductOperands& operands,
                                          const cublasLtMatmulAlgo_t& algorithm, int runs) {
        try {
            bool issued = true;
            auto recording = std::make_unique<CudaRecording>(backend_.context_, [&] {
                for (int i = 0; i < runs; ++i) issued = products_.issue(key, operands, algorithm) && issued;
            });
            return issued ? std::move(recording) : nullptr;
        } catch (const Error& error) {
            log::detail("a proposal for {} cannot be recorded: {}", key.text(), error.what());
            return nullptr;
        }
    }

    CudaBackend& backend_;
    Products& products_;
    std::vector<ProductCall> calls_;
    std::unique_ptr<void, Free> memory_;
    std::vector<std::string> kinds_;
    std::map<std::string, Known> known_;
    std::int64_t left_out_ = 0;
    TimingEvent begin_, end_;
};

std::unique_ptr<ProductTuner> CudaBackend::make_product_tuner(const std::function<void(CountingBackend&)>& issue) {
    ProductLister lister;
    issue(lister);
    return std::make_unique<Tuner>(*this, lister.calls());
}

}  // namespace cuda

std::unique_ptr<ProductTuner> make_product_tuner(Backend& backend, const std::function<void(CountingBackend&)>& issue) {
    auto* of_gpu = dynamic_cast<cuda::CudaBackend*>(&backend);
    return of_gpu != nullptr ? of_gpu->make_product_tuner(issue) : nullptr;
}

}  // namespace lockstep::kernels
