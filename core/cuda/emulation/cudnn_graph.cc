// The calls of cuDNN's graph API on emulated GPUs. What its descriptors can describe is in
// cudnn_graph_node.h; all else is refused.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/emulation/cudnn_graph_node.h"

namespace lockstep::emulation {
namespace {

// What cudnnBackendDescriptor_t points to.
struct Descriptor {
  std::shared_ptr<GraphNode> node;
};

Descriptor& Known(cudnnBackendDescriptor_t descriptor) {
  return *static_cast<Descriptor*>(descriptor);
}

std::string Number(int number) { return absl::StrCat(number); }

std::shared_ptr<GraphNode> FinalNode(cudnnBackendDescriptorType_t type) {
  auto node = std::make_shared<GraphNode>(type);
  node->is_final = true;
  return node;
}

// The nodes of an attribute of descriptors.
std::vector<std::shared_ptr<GraphNode>> NodesOf(const std::shared_ptr<GraphNode>& node,
                                                cudnnBackendAttributeName_t name) {
  std::vector<std::shared_ptr<GraphNode>> nodes;
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
    auto engine = FinalNode(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    engine->engine = node->Of(name).engine;
    return {std::move(engine)};
  }
  for (const Engine proposed : Proposals(*node)) {
    auto engine = FinalNode(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    engine->engine = proposed;
    auto configuration = FinalNode(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    configuration->nodes[CUDNN_ATTR_ENGINECFG_ENGINE] = {std::move(engine)};
    configuration->nodes[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] =
        node->nodes.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    nodes.push_back(std::move(configuration));
  }
  return nodes;
}

cudnnStatus_t TellNodes(const std::shared_ptr<GraphNode>& node, const Gettable& attribute,
                        int64_t wanted, int64_t* count, void* elements) {
  const auto nodes = NodesOf(node, attribute.name);
  const auto* const handles = static_cast<const cudnnBackendDescriptor_t*>(elements);
  const int64_t told = std::min(wanted, static_cast<int64_t>(nodes.size()));
  for (int64_t i = 0; i < told; ++i) {
    if (handles[i] == nullptr || Known(handles[i]).node->type != *attribute.of) {
      return RefuseDnn(CUDNN_STATUS_BAD_PARAM,
                       "descriptors to be filled in that are of another type");
    }
    if (Known(handles[i]).node->is_final) {
      return RefuseDnn(CUDNN_STATUS_BAD_PARAM, "a descriptor to be filled in that is finalized");
    }
  }
  for (int64_t i = 0; i < told; ++i) Known(handles[i]).node = nodes[static_cast<size_t>(i)];
  if (count != nullptr) *count = static_cast<int64_t>(nodes.size());
  return CUDNN_STATUS_SUCCESS;
}

template <typename T>
cudnnStatus_t Tell(const std::vector<T>& values, int64_t wanted, int64_t* count, void* elements) {
  const int64_t told = std::min(wanted, static_cast<int64_t>(values.size()));
  std::copy_n(values.begin(), told, static_cast<T*>(elements));
  if (count != nullptr) *count = static_cast<int64_t>(values.size());
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t SetNodes(GraphNode& node, const Settable& attribute, int64_t count,
                       const void* elements) {
  std::vector<std::shared_ptr<const GraphNode>> nodes;
  for (int64_t i = 0; i < count; ++i) {
    const cudnnBackendDescriptor_t from = static_cast<const cudnnBackendDescriptor_t*>(elements)[i];
    if (from == nullptr) return RefuseDnn(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    const Descriptor& known = Known(from);
    if (std::find(attribute.of.begin(), attribute.of.end(), known.node->type) ==
        attribute.of.end()) {
      return RefuseDnn(CUDNN_STATUS_BAD_PARAM,
                       absl::StrCat("attribute ", Number(attribute.name),
                                    " of a descriptor of type ", Number(known.node->type)));
    }
    if (!known.node->is_final) {
      return RefuseDnn(
          CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
          absl::StrCat("attribute ", Number(attribute.name), " of a descriptor not finalized"));
    }
    nodes.push_back(known.node);
  }
  node.nodes[attribute.name] = std::move(nodes);
  return CUDNN_STATUS_SUCCESS;
}

// Finds where the pack has a tensor.
cudnnStatus_t Place(const GraphNode& tensor, const GraphNode& pack, void** address) {
  const auto uids = pack.All<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto found =
      std::find(uids.begin(), uids.end(), tensor.One<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID));
  if (found == uids.end()) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM, "a tensor of the graph has no address");
  }
  *address = pack.All<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
                 .at(static_cast<size_t>(found - uids.begin()));
  if (*address == nullptr) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a tensor's address is null");
  }
  const auto alignment = tensor.One<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  if (reinterpret_cast<uintptr_t>(*address) % static_cast<uintptr_t>(alignment) != 0) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                     "an address is less aligned than its tensor was said to be");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Execute(cudnnHandle_t handle, const GraphNode& plan, const GraphNode& pack) {
  const GraphNode& configuration = plan.Of(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const Engine engine = configuration.Of(CUDNN_ATTR_ENGINECFG_ENGINE).engine;
  const auto [gradient, identity] =
      OperationsOf(configuration.Of(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
  void *x = nullptr, *dy = nullptr, *dw = nullptr;
  for (const auto& [tensor, address] :
       {std::pair(&gradient->Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X), &x),
        std::pair(&gradient->Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY), &dy),
        std::pair(&identity->Of(CUDNN_ATTR_OPERATION_POINTWISE_YDESC), &dw)}) {
    if (const cudnnStatus_t status = Place(*tensor, pack, address)) return status;
  }
  void* const workspace = pack.One<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (workspace == nullptr) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no workspace for a plan that needs it");
  }
  const Geometry g = GeometryOf(*gradient);
  return QueueDnn(handle, "cudnnBackendExecute",
                  {{"reads x,", x, g.x.bytes()},
                   {"reads dy,", dy, g.y.bytes()},
                   {"writes dw,", dw, g.w.bytes()}},
                  workspace, kWorkspaceBytes,
                  [=, random = Machine::Get().Random()] { Compute(engine, g, x, dy, random, dw); });
}

}  // namespace
}  // namespace lockstep::emulation

using lockstep::emulation::Descriptor;
using lockstep::emulation::Execute;
using lockstep::emulation::FindGettable;
using lockstep::emulation::FindSettable;
using lockstep::emulation::FirstUnset;
using lockstep::emulation::Gettable;
using lockstep::emulation::GraphNode;
using lockstep::emulation::Judge;
using lockstep::emulation::Known;
using lockstep::emulation::kWorkspaceBytes;
using lockstep::emulation::NotesOf;
using lockstep::emulation::Number;
using lockstep::emulation::RefuseDnn;
using lockstep::emulation::SetNodes;
using lockstep::emulation::Settable;
using lockstep::emulation::SizeOfElement;
using lockstep::emulation::Tell;
using lockstep::emulation::TellNodes;

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Descriptor{std::make_shared<GraphNode>(type)};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete &Known(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* elements) {
  if (descriptor == nullptr || elements == nullptr) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor, or no elements");
  }
  GraphNode& node = *Known(descriptor).node;
  if (node.is_final) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM, "an attribute of a descriptor that is finalized");
  }
  const Settable* const attribute = FindSettable(node.type, name);
  if (attribute == nullptr) {
    return RefuseDnn(
        CUDNN_STATUS_BAD_PARAM,
        absl::StrCat("attribute ", Number(name), " cannot be set on descriptors of type ",
                     Number(node.type), ", or is not emulated"));
  }
  if (type != attribute->type) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                     absl::StrCat("attribute ", Number(name), " with elements of type ",
                                  Number(type), " where it has ", Number(attribute->type)));
  }
  if (count < 1 || count > attribute->most) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM,
                     absl::StrCat("attribute ", Number(name), " with ", count, " elements"));
  }
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) return SetNodes(node, *attribute, count, elements);
  node.values[name].assign(static_cast<const char*>(elements),
                           static_cast<size_t>(count) * SizeOfElement(type));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  GraphNode& node = *Known(descriptor).node;
  if (node.is_final) return RefuseDnn(CUDNN_STATUS_BAD_PARAM, "a descriptor is finalized twice");
  if (const Settable* const unset = FirstUnset(node)) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM,
                     absl::StrCat("attribute ", Number(unset->name), " is not set"));
  }
  const cudnnStatus_t status = Judge(node);
  node.is_final = status == CUDNN_STATUS_SUCCESS;
  return status;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted,
                                       int64_t* count, void* elements) {
  if (descriptor == nullptr || (wanted > 0 && elements == nullptr)) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor, or no room for elements");
  }
  const std::shared_ptr<GraphNode> node = Known(descriptor).node;
  if (!node->is_final) {
    return RefuseDnn(CUDNN_STATUS_NOT_INITIALIZED,
                     absl::StrCat("attribute ", Number(name), " of a descriptor not finalized"));
  }
  const Gettable* const attribute = FindGettable(node->type, name);
  if (attribute == nullptr) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED,
                     absl::StrCat("attribute ", Number(name), " of descriptors of type ",
                                  Number(node->type), " is not emulated"));
  }
  if (type != attribute->type || wanted < 0) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                     absl::StrCat("attribute ", Number(name), " asked for as elements of type ",
                                  Number(type), " where it has ", Number(attribute->type)));
  }
  if (attribute->of.has_value()) return TellNodes(node, *attribute, wanted, count, elements);
  if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
    return Tell(NotesOf(node->engine), wanted, count, elements);
  }
  return Tell(std::vector<int64_t>{kWorkspaceBytes}, wanted, count, elements);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  if (handle == nullptr || plan == nullptr || pack == nullptr) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no handle, plan or pack");
  }
  const GraphNode &planned = *Known(plan).node, &packed = *Known(pack).node;
  if (planned.type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
      packed.type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM, "no plan, or no pack");
  }
  if (!planned.is_final || !packed.is_final) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a plan or pack is not finalized");
  }
  return Execute(handle, planned, packed);
}
