// What the descriptors of cuDNN's graph API hold on emulated GPUs: the gradient of a convolution's
// weights and, behind it, an identity, whose engines take operands of 16 bits and write fp32.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cuda/emulation/cudnn_convolutions.h"

namespace lockstep::emulation {

// How an engine adds up.
enum class Engine {
  kAnyOrder,     // the gradients of images, in any order
  kUnplannable,  // not at all: there is no plan
  kRounded,      // the gradients of images, with a sum of 16 bits
  kChain,        // one chain of multiply-adds
};

// What a descriptor describes; not moved, so that other descriptors can keep it.
struct GraphNode {
  explicit GraphNode(cudnnBackendDescriptorType_t of_type) : type(of_type) {}

  template <typename T>
  std::vector<T> All(cudnnBackendAttributeName_t name) const {
    const std::string& bytes = values.at(name);
    std::vector<T> all(bytes.size() / sizeof(T));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }
  template <typename T>
  T One(cudnnBackendAttributeName_t name) const {
    return All<T>(name).at(0);
  }
  const GraphNode& Of(cudnnBackendAttributeName_t name) const { return *nodes.at(name).at(0); }

  const cudnnBackendDescriptorType_t type;
  std::map<cudnnBackendAttributeName_t, std::string> values;  // the bytes
  std::map<cudnnBackendAttributeName_t, std::vector<std::shared_ptr<const GraphNode>>> nodes;
  Engine engine = Engine::kChain;  // of an engine
  bool is_final = false;
};

// --- attributes (cudnn_graph_attributes.cc) -----------------------------------------------------

// An attribute that can be set.
struct Settable {
  enum class Need { kRequired, kOptional };

  cudnnBackendDescriptorType_t descriptor;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t most;  // elements
  // What elements that are descriptors may describe.
  std::vector<cudnnBackendDescriptorType_t> of = {};
  Need need = Need::kRequired;
};

// An attribute that a finalized descriptor tells.
struct Gettable {
  cudnnBackendDescriptorType_t descriptor;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  std::optional<cudnnBackendDescriptorType_t> of = {};
};

// Null: descriptors of the type have no such attribute, or it is not emulated.
const Settable* FindSettable(cudnnBackendDescriptorType_t descriptor,
                             cudnnBackendAttributeName_t name);
const Gettable* FindGettable(cudnnBackendDescriptorType_t descriptor,
                             cudnnBackendAttributeName_t name);

// The first attribute that must be set before such a descriptor is finalized, and is not; null: all
// are set.
const Settable* FirstUnset(const GraphNode& node);

size_t SizeOfElement(cudnnBackendAttributeType_t type);

// --- what is described (cudnn_graph_descriptions.cc) --------------------------------------------

// The operations of a graph.
struct Operations {
  const GraphNode* gradient;
  const GraphNode* identity;  // null: there is none
};
Operations OperationsOf(const GraphNode& graph);

// Whether engines may keep a tensor to themselves.
bool IsVirtual(const GraphNode& tensor);

// The geometry of a gradient whose tensors have four dimensions.
Geometry GeometryOf(const GraphNode& gradient);

// Refuses what cannot be finalized; all attributes are set.
cudnnStatus_t Judge(const GraphNode& node);

// --- engines (cudnn_graph_engines.cc) -----------------------------------------------------------

// What heuristics propose, the fastest first. LOCKSTEP_EMULATED_CUDNN_ENGINES of the environment
// leaves some out: "none", all; "fallback", those that are not of the fallback mode;
// "nondeterministic", those whose sums are neither rounded nor come in any order.
std::vector<Engine> Proposals(const GraphNode& heuristics);

std::vector<cudnnBackendNumericalNote_t> NotesOf(Engine engine);

// What a plan of any engine asks for; no power of two.
constexpr int64_t kWorkspaceBytes = 5000;

// dw = the gradient. `random`: where an order that is any begins.
void Compute(Engine engine, const Geometry& g, const void* x, const void* dy, uint64_t random,
             void* dw);

}  // namespace lockstep::emulation
