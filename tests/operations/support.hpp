// What the tests of the operations share. The same tests run on every backend: on the CPU's (LOCKSTEP_TEST_CPU, ctest
// cpu/<family>) with every instruction set of this machine and several numbers of threads, on the emulated GPU (ctest
// emulation/<family>) in several orders of threads, on a machine that runs their PTX (ctest ptx/<family>) in two, and
// where there is a GPU, on that (ctest cuda/<family>).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/float16.hpp"
#include "unit/kernels/support.hpp"

#if !defined(LOCKSTEP_TEST_CPU)
#include "device/gpu.hpp"
#include "kernels/cuda.hpp"
#endif
#if defined(LOCKSTEP_CUDA_EMULATION)
#include "cuda_emulation/device.hpp"
#endif
#if defined(LOCKSTEP_TEST_PTX)
#include "ptx/settings.hpp"
#endif

namespace lockstep::operation_tests {

using kernel_tests::plus;
using kernel_tests::random_ids;
using reference::Values;

#if defined(LOCKSTEP_TEST_CPU)
const std::vector<Type> compute_types = {Type::fp32, Type::bf16};

// With the best instruction set of this processor, but inside for_each_backend.
inline kernels::Backend*& backend_in_turn() {
    static kernels::Backend* in_turn = nullptr;
    return in_turn;
}
inline kernels::Backend& backend() {
    static const auto best = kernels::make_cpu_backend();
    return backend_in_turn() != nullptr ? *backend_in_turn() : *best;
}
#else
const std::vector<Type> compute_types = {Type::fp32, Type::bf16, Type::fp16};

inline kernels::Backend& backend() {
    static const auto made = kernels::make_cuda_backend(open_gpu(0));
    return *made;
}
#endif

// body() with backend() of every instruction set that the processor has; once on a GPU.
template <class Body>
void for_each_backend(Body&& body) {
#if defined(LOCKSTEP_TEST_CPU)
    if (backend_in_turn() != nullptr) return body();  // one inside another
    struct Turn {
        explicit Turn(kernels::Backend& one) { backend_in_turn() = &one; }
        ~Turn() { backend_in_turn() = nullptr; }
    };
    kernel_tests::for_each_instruction_set([&](kernels::Backend& one, const std::string& name) {
        const Turn turn(one);
        BOOST_TEST_CONTEXT(name) {
            body();
        }
    });
#else
    body();
#endif
}

inline double roundoff(Type type) {
    if (type == Type::bf16) return reference::bf16_roundoff;
    return type == Type::fp16 ? reference::fp16_roundoff : reference::fp32_roundoff;
}

// A tensor on the device that owns its memory.
class OnDevice {
  public:
    OnDevice(Type type, const Shape& shape)
        : memory_(backend().device(), static_cast<std::size_t>(element_count(shape)) * type_bytes(type) + 256, "test"),
          tensor_(memory_.allocate(type, shape)) {}
    // The values, rounded to `type`.
    OnDevice(Type type, const Shape& shape, const Values& values) : OnDevice(type, shape) { set(values); }

    void set(const Values& values) {
        BOOST_REQUIRE_EQUAL(static_cast<std::int64_t>(values.size()), tensor_.count());
        std::vector<char> bytes(tensor_.bytes());
        for (std::size_t i = 0; i < values.size(); ++i) encode(bytes.data(), i, values[i]);
        backend().upload(tensor_, bytes.data());
    }
    // Every byte 0xff: NaN in every type, so that what a kernel forgets to write shows.
    void poison() {
        const std::vector<char> bytes(tensor_.bytes(), static_cast<char>(0xff));
        backend().upload(tensor_, bytes.data());
    }
    std::vector<char> bytes() const {
        std::vector<char> bytes(tensor_.bytes());
        backend().download(bytes.data(), tensor_);
        return bytes;
    }
    Values values() const {
        const std::vector<char> raw = bytes();
        Values values(static_cast<std::size_t>(tensor_.count()));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = decode(raw.data(), i);
        return values;
    }
    Tensor tensor() const { return tensor_; }
    operator Tensor() const { return tensor_; }

  private:
    void encode(char* bytes, std::size_t i, double value) const {
        const auto number = static_cast<float>(value);
        const auto put = [&](const auto& element) {
            std::memcpy(bytes + i * sizeof(element), &element, sizeof(element));
        };
        switch (tensor_.type()) {
            case Type::fp32:
                return put(number);
            case Type::bf16:
                return put(bf16_bits(number));
            case Type::fp16:
                return put(fp16_bits(number));
            case Type::int32:
                return put(static_cast<std::int32_t>(value));
            case Type::fp64:
                return put(value);
        }
    }
    double decode(const char* bytes, std::size_t i) const {
        const auto get = [&](auto element) {
            std::memcpy(&element, bytes + i * sizeof(element), sizeof(element));
            return element;
        };
        switch (tensor_.type()) {
            case Type::fp32:
                return static_cast<double>(get(float{}));
            case Type::bf16:
                return static_cast<double>(bf16_value(get(std::uint16_t{})));
            case Type::fp16:
                return static_cast<double>(fp16_value(get(std::uint16_t{})));
            case Type::int32:
                return static_cast<double>(get(std::int32_t{}));
            case Type::fp64:
                return get(double{});
        }
        return 0;
    }

    Arena memory_;
    Tensor tensor_;
};

// A tensor whose elements start `skip` past an aligned address.
class Skewed {
  public:
    Skewed(Type type, const Shape& shape, std::int64_t skip)
        : memory_(type, {element_count(shape) + skip}), skip_(skip), shape_(shape) {
        memory_.poison();
    }
    Skewed(Type type, const Shape& shape, std::int64_t skip, Values values) : Skewed(type, shape, skip) {
        values.insert(values.begin(), static_cast<std::size_t>(skip), 0.0);
        memory_.set(values);
    }
    Values values() const {
        const Values all = memory_.values();
        return {all.begin() + skip_, all.end()};
    }
    std::vector<char> bytes() const { return memory_.bytes(); }
    operator Tensor() const { return memory_.tensor().slice(skip_, element_count(shape_)).reshaped(shape_); }

  private:
    OnDevice memory_;
    std::int64_t skip_;
    Shape shape_;
};

// A matrix that is columns of a wider one, whose other columns must not change.
class Columns {
  public:
    Columns(Type type, std::int64_t rows, std::int64_t width, std::int64_t before, std::int64_t behind)
        : memory_(type, {rows, before + width + behind}), before_(before), width_(width) {
        memory_.poison();
    }
    Columns(Type type, std::int64_t rows, std::int64_t width, std::int64_t before, std::int64_t behind,
            const Values& values)
        : Columns(type, rows, width, before, behind) {
        beside_ = 7;
        Values all(static_cast<std::size_t>(memory_.tensor().count()), beside_);
        visit([&](std::size_t inside, std::size_t outside) { all[outside] = values[inside]; });
        memory_.set(all);
    }
    Values values() const {
        const Values all = memory_.values();
        Values values(static_cast<std::size_t>(memory_.tensor().rows() * width_));
        visit([&](std::size_t inside, std::size_t outside) { values[inside] = all[outside]; });
        return values;
    }
    std::vector<char> bytes() const { return memory_.bytes(); }
    // Whether the other columns are as they were.
    bool untouched() const {
        Values all = memory_.values();
        visit([&](std::size_t, std::size_t outside) { all[outside] = beside_; });
        return std::all_of(all.begin(), all.end(), [&](double value) {
            return value == beside_ || (std::isnan(value) && std::isnan(beside_));
        });
    }
    operator Tensor() const { return memory_.tensor().columns(before_, width_); }

  private:
    template <class Body>
    void visit(Body&& body) const {
        const auto stride = static_cast<std::size_t>(memory_.tensor().size(-1)),
                   before = static_cast<std::size_t>(before_);
        const auto width = static_cast<std::size_t>(width_), rows = static_cast<std::size_t>(memory_.tensor().rows());
        for (std::size_t row = 0; row < rows; ++row)
            for (std::size_t column = 0; column < width; ++column)
                body(row * width + column, row * stride + before + column);
    }

    OnDevice memory_;
    std::int64_t before_, width_;
    double beside_ = std::numeric_limits<double>::quiet_NaN();
};

// Normally distributed values, rounded to `type`: what a tensor of that type can hold, so that the reference sees the
// very same inputs.
inline Values random_rounded(Type type, std::size_t count, const std::string& purpose, double scale = 1) {
    Values values = kernel_tests::random_values(count, purpose, scale);
    for (double& value : values) {
        const auto number = static_cast<float>(value);
        if (type == Type::bf16)
            value = static_cast<double>(bf16_value(bf16_bits(number)));
        else if (type == Type::fp16)
            value = static_cast<double>(fp16_value(fp16_bits(number)));
        else
            value = static_cast<double>(number);
    }
    return values;
}

inline Values as_values(const std::vector<int>& ids) {
    return {ids.begin(), ids.end()};
}

// `type`: the lowest precision on the way to the result; `terms`: the longest sum behind one value.
inline void check_close(const Values& actual, const Values& expected, Type type, std::size_t terms,
                        const std::string& what) {
    BOOST_REQUIRE_EQUAL(actual.size(), expected.size());
    double size = 1e-30, worst = 0;
    std::size_t place = 0;
    for (const double value : expected) size = std::max(size, std::abs(value));
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double error = std::abs(actual[i] - expected[i]) / size;
        if (!(error <= worst)) {  // NaN counts
            worst = error;
            place = i;
        }
    }
    // A 16-bit result of fp32 sums is rounded once or a few times: its error does not grow with the number of terms.
    const double allowed = type == Type::fp32
                               ? reference::tolerance(reference::fp32_roundoff, terms)
                               : 3 * roundoff(type) + reference::tolerance(reference::fp32_roundoff, terms);
    BOOST_CHECK_MESSAGE(worst <= allowed, what << ": element " << place << " of " << expected.size() << " is off by "
                                               << worst << " of the largest value, " << allowed << " is allowed");
}

// body(type) for every compute type of the device, with every backend.
template <class Body>
void for_each_type(Body&& body) {
    for_each_backend([&] {
        for (const Type type : compute_types) body(type);
    });
}

// body() with several numbers of threads, or on a GPU under several orders of a block's threads, which a real one draws
// by itself. Results must be the same bits: let body return them. `any_threads`: of every number of threads, else of
// the same number only.
template <class Body>
void for_each_order(Body&& body, [[maybe_unused]] bool any_threads = true) {
    using Results = std::vector<std::vector<char>>;
#if defined(LOCKSTEP_TEST_CPU)
    for_each_backend([&] {
        const int before = threads();
        set_threads(1);
        const Results first = body();
        for (const int count : {2, 3, 5}) {
            set_threads(count);
            const Results results = body();
            if (any_threads)
                BOOST_CHECK_MESSAGE(results == first, count << " threads change the result");
            else
                BOOST_CHECK_MESSAGE(results == body(), "another result of the same " << count << " threads");
        }
        set_threads(before);
    });
#elif defined(LOCKSTEP_CUDA_EMULATION)
    Results first;
    for (const std::uint64_t seed : {0, 1, 2}) {
        emulation::set_seed(seed);
        Results results = body();
        if (first.empty())
            first = std::move(results);
        else
            BOOST_CHECK_MESSAGE(results == first, "the order of threads, seed " << seed << ", changes the result");
    }
    emulation::set_seed(0);
#elif defined(LOCKSTEP_TEST_PTX)
    const ptx::Options before = ptx::settings().options;
    const Results first = body();
    const bool lockstep = before.schedule == ptx::Options::Schedule::lockstep;
    ptx::set_order(lockstep ? ptx::Options::Schedule::split : ptx::Options::Schedule::lockstep, before.seed + 1);
    BOOST_CHECK_MESSAGE(body() == first, "the order of threads changes the result");
    ptx::set_order(before.schedule, before.seed);
#else
    const Results first = body(), second = body();
    BOOST_CHECK_MESSAGE(first == second, "two runs differ");
#endif
}

}  // namespace lockstep::operation_tests
