// One rank's learned tensors: values, working copies, gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/memory.hpp"
#include "device/tensor.hpp"
#include "kernels/backend.hpp"
#include "model/flat_windows.hpp"
#include "model/parameter_description.hpp"

namespace lockstep::model {

// How replicas divide the trained parameters (ZeRO; Rajbhandari et al. 2020, arXiv:1910.02054).
struct Division {
    std::vector<Piece> owned;  // updated here; ascending, aligned to the layout's alignment; empty: all, undivided
    // The trained parameters as windows. In these are the gradients (ZeRO stage 2), which are kept of owned pieces
    // only, and what is computed with (stage 3), which is gathered before it is needed; else both are whole.
    std::vector<Window> windows{};
    bool gradients = false, values = false;
    // With values: the frozen parameters as windows, and what is kept of them here, in the compute type. Buffers are
    // others than those of trained ones.
    std::vector<Window> frozen_windows{};
    std::vector<Piece> frozen_owned{};
    // fp32 values lie in this host memory, where they are updated, apart from what the device computes with. Owned
    // pieces are named even if nothing is divided.
    std::optional<Device> offloaded{};
};

// What adapters project rows to, one layer at a time: [most rows · rank] each, flat.
struct AdapterScratch {
    Tensor exact, rounded;  // fp32, and the compute type; empty if that is fp32
    Tensor dropped;         // a layer's input after dropout, [most rows · widest input]; empty: there is none
    Tensor tokens;          // as kernels::Dropout, of the pass under way; empty: it has no dropout
};

// Values and gradients are fp32; for other compute types there are working copies of the values. Each kind is one flat
// tensor in layout order, so that optimizer and reductions handle few tensors.
//
// If replicas divide the optimizer, a rank keeps fp32 values only of the pieces it owns, and entire only what it
// computes with: the working copies and, in a separate flat tensor, fp32 values of exact parameters. (If the compute
// type is fp32, it computes with the values, so all are kept.) If they divide the values, too, working copies, or in
// fp32 all values, are in windows.
//
// Of a frozen parameter every rank keeps only what it computes with, or its pieces of that if values are divided.
class ParameterSet {
  public:
    ParameterSet(Device device, ParameterLayout layout, bool with_gradients, Type compute = Type::fp32,
                 Division division = {});
    // A whole model on a single rank.
    ParameterSet(Device device, std::vector<ParameterDescription> descriptions, bool with_gradients,
                 Type compute = Type::fp32);

    const ParameterLayout& layout() const { return layout_; }
    const std::vector<ParameterDescription>& descriptions() const { return layout_.descriptions(); }
    bool has(const std::string& name) const { return index_.count(name) > 0; }
    const ParameterDescription& description(const std::string& name) const { return descriptions()[at(name)]; }
    // fp32; of an exact parameter, or if nothing is divided or offloaded (frozen ones: if the compute type is fp32).
    // Views are lasting, also those of windows.
    Tensor value(const std::string& name) const;
    Tensor working(const std::string& name) const;   // in the compute type: for products and embeddings
    Tensor gradient(const std::string& name) const;  // empty without gradients, and for frozen parameters
    // For operations that compute an exact parameter's gradient along with their input's: if it is frozen, scratch
    // memory shared by the blocks.
    Tensor gradient_or_spare(const std::string& name) const;
    // What is kept of a frozen parameter: fp32 if exact or if the compute type is fp32, else the compute type.
    // Whole, unless divided.
    Tensor frozen_value(std::size_t index) const;
    // What this rank keeps of it: values from element `first` of its slice on.
    struct KeptPart {
        std::int64_t first = 0;
        Tensor value;
    };
    std::vector<KeptPart> frozen_parts(std::size_t index) const;
    bool trains(const std::string& prefix) const;  // any parameter with this name prefix

    // A layer may overwrite a gradient in the first backward pass of a step or lane, or in each if gradients are
    // divided, instead of adding to it, if it computes the whole of it exactly once in every pass. It registers the
    // parameter, whose gradient is then not cleared, and asks before it writes how the coming pass must.
    void overwrite_in_first_pass(const std::string& name) const;
    const kernels::Accumulate& coming_pass() const { return passes_->accumulate; }
    void set_first_pass(bool first) {
        passes_->accumulate = first ? kernels::Accumulate::no : kernels::Accumulate::yes;
    }
    // See model/low_rank_update.hpp.
    void set_adapter_scratch(const AdapterScratch& scratch, Arena memory) {
        *adapter_scratch_ = scratch;
        adapter_memory_ = std::move(memory);
    }
    const AdapterScratch& adapter_scratch() const { return *adapter_scratch_; }
    std::size_t adapter_scratch_bytes() const { return adapter_memory_.capacity(); }
    // Of the next passes; empty: without dropout.
    void set_dropout_tokens(Tensor tokens) { adapter_scratch_->tokens = tokens; }
    // Before such a pass, all or a range: those that no layer overwrites.
    void clear_gradients(kernels::Backend& backend);
    void clear_gradients(kernels::Backend& backend, const Piece& range);
    Type compute_type() const { return compute_; }

    // Flat tensors; empty if there are none, or windows of them. Gradients, and values if there are working copies,
    // cover trained parameters only.
    Tensor all_values() const { return all_values_; }
    Tensor all_working() const { return all_working_; }
    Tensor all_gradients() const { return all_gradients_; }
    Tensor all_exact() const { return all_exact_; }    // fp32 values of exact parameters outside all_values()
    Tensor part(Tensor all, std::size_t index) const;  // parameter `index` within a flat tensor
    Tensor gradients(const Piece& range) const { return gradients_.slice(range.first, range.count); }  // of a window

    // The pieces this rank updates, their fp32 values, and the gradients of a range of one, or of several that follow
    // each other.
    const std::vector<Piece>& owned() const { return owned_; }
    Tensor owned_value(std::size_t piece) const { return owned_values_[piece]; }
    // Where values are offloaded: what the device is to compute with, in host memory; the value itself in fp32.
    Tensor owned_sent(std::size_t piece) const { return owned_sent_[piece]; }
    Tensor owned_gradients(const Piece& range) const;

    bool offloaded() const { return offloaded_.has_value(); }
    const Device& host() const { return *offloaded_; }  // where values are offloaded to
    // Owned pieces that an update has written there go to the device.
    void send(kernels::Backend& backend, std::size_t piece) const;
    bool divides_gradients() const { return divides_gradients_; }
    bool divides_values() const { return divides_values_; }
    // Of divided values, a window that is to be gathered: this rank's pieces become the values it owns.
    Tensor window(const Piece& range) const { return working_.slice(range.first, range.count); }
    void fill_own_part(kernels::Backend& backend, const Piece& window) const;

    // What replicas exchange after updating the piece [first, first + count): flat tensors, and the mapping of
    // positions within the piece to each.
    struct Shared {
        Tensor tensor;
        std::vector<std::int64_t> cuts;
    };
    std::vector<Shared> shared(const Piece& range, const std::vector<std::int64_t>& cuts) const;

    // Initial values of all parameters, or some: a function of (seed, name, element of the whole tensor) only. Sets
    // owned pieces, as after an update.
    void initialize(kernels::Backend& backend, std::uint64_t seed,
                    const std::function<bool(const ParameterDescription&)>& of = {});
    void refresh_working(kernels::Backend& backend);  // from the values this rank owns
    void refresh_exact(kernels::Backend& backend);    // likewise, if an update has written the working copies
    std::size_t value_bytes() const {
        return (offloaded() ? received_.capacity() : values_.capacity()) + frozen_.capacity() + working_.bytes() +
               exact_.capacity();
    }
    std::size_t host_bytes() const { return offloaded() ? values_.capacity() + sent_.capacity() : 0; }
    std::size_t gradient_bytes() const { return gradients_.bytes() + owned_gradients_.capacity() + spare_.capacity(); }

  private:
    // Shared with the layers.
    struct Passes {
        kernels::Accumulate accumulate = kernels::Accumulate::yes;
        std::set<std::size_t> overwritten;  // parameters
    };
    std::size_t at(const std::string& name) const;
    std::vector<Tensor> gradients_to_clear(const Piece& range) const;
    bool is_kept_exactly(std::size_t index) const;
    std::int64_t exact_position(std::int64_t position) const;
    void plan_exact();
    void plan_spare(Device device);
    void initialize(kernels::Backend& backend, std::uint64_t seed, std::size_t index, std::int64_t first,
                    Tensor to) const;
    ParameterLayout layout_;
    std::map<std::string, std::size_t> index_;
    Type compute_;
    std::vector<Piece> owned_;
    std::vector<Tensor> owned_values_, owned_sent_, owned_received_;  // the last: on the device, of divided values
    std::optional<Device> offloaded_;
    std::vector<Piece> frozen_owned_;
    std::vector<Tensor> frozen_values_;  // of these
    bool divides_gradients_ = false, divides_values_ = false;
    std::int64_t values_end_ = 0;                          // the end of all_values_ in the layout
    std::vector<std::int64_t> exact_offsets_;              // per parameter: elements of all_exact_ before it
    std::vector<std::pair<Tensor, Tensor>> exact_copies_;  // to, from: of what this rank owns
    std::map<std::string, Tensor> spare_gradients_;        // by name within a block
    std::unique_ptr<Passes> passes_ = std::make_unique<Passes>();
    std::unique_ptr<AdapterScratch> adapter_scratch_ = std::make_unique<AdapterScratch>();
    Arena values_, sent_, received_, frozen_, owned_gradients_, exact_, spare_, adapter_memory_;
    FlatWindows working_, gradients_;
    Tensor all_values_, all_working_, all_gradients_, all_owned_gradients_, all_exact_;
};

}  // namespace lockstep::model
